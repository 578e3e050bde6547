//! Signing policies of certificate authorities: the subjects that a CA may certify (the EACL files
//! of the Globus Toolkit).
//!
//! ```text
//! access_id_CA  X509    '/C=CH/O=Grid/CN=Grid CA'
//! pos_rights    globus  CA:sign
//! cond_subjects globus  '"/C=CH/O=Grid/*" "/DC=ch/DC=grid/*"'
//! ```
//!
//! Names have OpenSSL's one-line form, with a slash before each attribute.

use crate::proto::Malformed;

/// The largest accepted file: 1 MiB. The policies of IGTF are below 2 KiB.
pub const MAX_POLICY: usize = 1 << 20;

/// The permissions in one policy file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SigningPolicy {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    authority: String,
    subjects: Vec<String>,
}

/// A policy's decision about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyDecision {
    /// The authority may certify the subject.
    Permitted,
    /// The authority is named, but none of its patterns matches the subject.
    Denied,
    /// The authority is not named.
    NotNamed,
}

impl SigningPolicy {
    /// Parses a policy. Only positive rights to sign are supported; any other line is an error, so
    /// that no restriction is lost.
    ///
    /// # Errors
    /// [`Malformed`] with the line.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut policy = Self::default();
        let mut may_sign = false;
        for (index, line) in text.lines().enumerate() {
            let fail = |why: &str| Malformed::new(format!("line {}: {why}", index + 1));
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (keyword, rest) = split_word(line);
            let (authority, value) = split_word(rest);
            match keyword {
                "access_id_CA" => {
                    if !authority.eq_ignore_ascii_case("x509") {
                        return Err(fail("access_id_CA is not of type X509"));
                    }
                    let name = single(value).ok_or(fail("the name of the authority is not in quotes"))?;
                    policy.entries.push(Entry { authority: normal_name(name), subjects: Vec::new() });
                    may_sign = false;
                }
                "pos_rights" if value.trim() == "CA:sign" => may_sign = true,
                "cond_subjects" if may_sign => {
                    let entry = policy.entries.last_mut().ok_or(fail("cond_subjects before access_id_CA"))?;
                    let found =
                        patterns(value).ok_or(fail("the patterns of cond_subjects are not in quotes"))?;
                    entry.subjects.extend(found.into_iter().map(normal_name));
                }
                "cond_subjects" => return Err(fail("cond_subjects without pos_rights globus CA:sign")),
                "pos_rights" => return Err(fail("a right other than CA:sign")),
                "neg_rights" => return Err(fail("neg_rights is not supported")),
                _ => {
                    return Err(fail(
                        "an unknown keyword: access_id_CA, pos_rights or cond_subjects belong here",
                    ));
                }
            }
        }
        Ok(policy)
    }

    /// Returns whether the policy permits `authority` to certify `subject`; both are one-line
    /// names.
    pub fn decide(&self, authority: &str, subject: &str) -> PolicyDecision {
        let (authority, subject) = (normal_name(authority), normal_name(subject));
        let mut entries = self.entries.iter().filter(|entry| entry.authority == authority).peekable();
        if entries.peek().is_none() {
            return PolicyDecision::NotNamed;
        }
        let permitted = entries.flat_map(|entry| &entry.subjects).any(|pattern| matches(pattern, &subject));
        if permitted { PolicyDecision::Permitted } else { PolicyDecision::Denied }
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()))
}

/// Returns a quoted value; a comment may follow it.
fn single(text: &str) -> Option<&str> {
    let (inside, rest) = quoted(text)?;
    (rest.trim().is_empty() || rest.trim_start().starts_with('#')).then_some(inside)
}

/// Returns the patterns of `'"a" "b"'`, `'a'` or `"a"`.
fn patterns(text: &str) -> Option<Vec<&str>> {
    let mut rest = single(text)?.trim();
    if !rest.starts_with('"') {
        return Some(vec![rest]);
    }
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (inside, after) = quoted(rest)?;
        found.push(inside);
        rest = after.trim_start();
    }
    Some(found)
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    text[1..].split_once(quote)
}

/// Replaces the alternative short names of attributes by one form.
fn normal_name(name: &str) -> String {
    const SYNONYMS: [(&str, &str); 3] =
        [("/Email=", "/emailAddress="), ("/E=", "/emailAddress="), ("/USERID=", "/UID=")];
    SYNONYMS.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// Matches a pattern in which `*` is any text and `?` any character. Iterative, because recursion
/// could take exponential time: O(pattern x text).
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The position after the last star, and the text position at which the rest of the pattern was
    // last tried.
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (p, t) = (star + 1, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CERN: &str = "\
# EACL
access_id_CA      X509         '/DC=ch/DC=cern/CN=CERN Root'
pos_rights        globus        CA:sign
cond_subjects     globus     '\"/DC=ch/DC=cern/*\" \"/O=Grid/O=CERN/CN=?\"'

access_id_CA X509 \"/C=DE/CN=Other\"
pos_rights globus CA:sign
cond_subjects globus '/C=DE/Email=*'
";

    #[test]
    fn matching_subjects_are_permitted() {
        let policy = SigningPolicy::parse(CERN).unwrap();
        let root = "/DC=ch/DC=cern/CN=CERN Root";
        for (authority, subject, verdict) in [
            (root, "/DC=ch/DC=cern/OU=x/CN=host/a", PolicyDecision::Permitted),
            (root, "/O=Grid/O=CERN/CN=A", PolicyDecision::Permitted),
            (root, "/O=Grid/O=CERN/CN=AB", PolicyDecision::Denied),
            (root, "/C=DE/CN=a", PolicyDecision::Denied),
            ("/C=DE/CN=Other", "/C=DE/emailAddress=a@b", PolicyDecision::Permitted),
            ("/C=DE/CN=Other", "/DC=ch/DC=cern/CN=a", PolicyDecision::Denied),
            ("/C=FR/CN=Unknown", "/DC=ch/DC=cern/CN=a", PolicyDecision::NotNamed),
        ] {
            assert_eq!(policy.decide(authority, subject), verdict, "{authority} -> {subject}");
        }
        let policy = SigningPolicy::parse("access_id_CA X509 '/C=DE'\npos_rights globus CA:sign\n").unwrap();
        assert_eq!(policy.decide("/C=DE", "/C=DE/CN=a"), PolicyDecision::Denied, "no pattern");
        assert!(matches("*a*ab", "xaabab") && matches("*", ""));
        assert!(!matches("*a*ab", "xaaba") && !matches("", "a"));
        // At most quadratic; a recursive match would not end in practice.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
    }

    #[test]
    fn unsupported_policies_are_refused() {
        for (text, line) in [
            ("neg_rights globus CA:sign", 1),
            ("access_id_CA X509 /C=DE", 1),
            ("access_id_CA X509 '/C=DE'\npos_rights globus CA:revoke", 2),
            ("access_id_CA X509 '/C=DE'\ncond_subjects globus '/C=DE/*'", 2),
            ("pos_rights globus CA:sign\ncond_subjects globus '/C=DE/*'", 2),
            ("access_id_CA X509 '/C=DE'\npos_rights globus CA:sign\ncond_subjects globus '\"/C=DE/*'", 3),
            ("hello", 1),
        ] {
            let error = SigningPolicy::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line {line}: ")), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(?s).{0,300}", authority in ".{0,20}", subject in ".{0,40}") {
            if let Ok(policy) = SigningPolicy::parse(&text) {
                policy.decide(&authority, &subject);
            }
        }

        #[test]
        fn text_matches_itself_and_every_prefix_with_a_star(text in "[a-z/=]{0,20}", cut in 0usize..20) {
            let prefix = &text[..cut.min(text.len())];
            prop_assert!(matches(&text, &text) && matches(&(prefix.to_owned() + "*"), &text));
        }
    }
}
