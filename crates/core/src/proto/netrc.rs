//! The .netrc file: logins by host, parsed as in curl and ftp.

use std::fmt;

use super::Malformed;

/// A login for a host; `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user's name; may be empty.
    pub user: String,
    /// The password; may be empty.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:***", self.user)
    }
}

/// The keywords; each but `default` has a value.
const KEYWORDS: [&str; 6] = ["machine", "default", "login", "password", "account", "macdef"];

/// Finds the login for `host` in a .netrc file: its first `machine` entry, or, if `takes_default`,
/// the `default` entry.
///
/// The syntax is that of curl: keywords are case-insensitive; other words, macro definitions and
/// comments, which begin with # in place of a keyword, are skipped. Words may be quoted, with
/// backslash escapes.
///
/// # Errors
/// [`Malformed`] with the line.
pub fn netrc_login(text: &str, host: &str, takes_default: bool) -> Result<Option<Login>, Malformed> {
    let mut words = Words { rest: text, line: 1 };
    let mut entry: Option<Login> = None;
    while let Some(keyword) = words.keyword()? {
        match keyword {
            // The matching entry has ended. `default` is the last entry by definition; entries
            // after it do not count.
            "machine" | "default" if entry.is_some() => break,
            "machine" if words.value(keyword)?.eq_ignore_ascii_case(host) => entry = Some(Login::empty()),
            "default" if takes_default => entry = Some(Login::empty()),
            "default" => break,
            "login" | "password" => {
                let value = words.value(keyword)?;
                match &mut entry {
                    Some(login) if keyword == "login" => login.user = value,
                    Some(login) => login.password = value,
                    None => {}
                }
            }
            "account" => {
                words.value(keyword)?;
            }
            "macdef" => words.skip_macro(),
            _ => {}
        }
    }
    Ok(entry)
}

impl Login {
    fn empty() -> Self {
        Self { user: String::new(), password: String::new() }
    }
}

/// The unread words of a .netrc file.
struct Words<'a> {
    rest: &'a str,
    line: usize,
}

impl Words<'_> {
    /// Reads up to and including the next keyword; `None` at the end.
    fn keyword(&mut self) -> Result<Option<&'static str>, Malformed> {
        loop {
            self.skip_space();
            if self.rest.starts_with('#') {
                self.skip_line();
                continue;
            }
            let Some(word) = self.word()? else { return Ok(None) };
            if let Some(keyword) = KEYWORDS.into_iter().find(|keyword| keyword.eq_ignore_ascii_case(&word)) {
                return Ok(Some(keyword));
            }
        }
    }

    /// Reads the value of `keyword`, which may equal a keyword.
    fn value(&mut self, keyword: &'static str) -> Result<String, Malformed> {
        let line = self.line;
        self.skip_space();
        self.word()?.ok_or_else(|| Malformed::new(format!("line {line}: '{keyword}' without a value")))
    }

    /// Reads a word at the current position; `None` at the end of the text.
    fn word(&mut self) -> Result<Option<String>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        if let Some(inner) = self.rest.strip_prefix('"') {
            let line = inner.lines().next().unwrap_or_default();
            let open = || format!("line {}: a quoted word without its closing quote", self.line);
            let (word, length) = quoted(line).ok_or_else(|| Malformed::new(open()))?;
            self.rest = &inner[length..];
            return Ok(Some(word));
        }
        let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Some(word.to_owned()))
    }

    fn skip_space(&mut self) {
        let trimmed = self.rest.trim_start();
        let skipped = &self.rest[..self.rest.len() - trimmed.len()];
        self.line += skipped.matches('\n').count();
        self.rest = trimmed;
    }

    fn skip_line(&mut self) {
        self.rest = match self.rest.split_once('\n') {
            Some((_, rest)) => {
                self.line += 1;
                rest
            }
            None => "",
        };
    }

    /// Skips a macro: the rest of its line, and further lines up to an empty one.
    fn skip_macro(&mut self) {
        self.skip_line();
        while !self.rest.is_empty() {
            let ended = self.rest.lines().next().is_none_or(|line| line.trim().is_empty());
            self.skip_line();
            if ended {
                return;
            }
        }
    }
}

/// Parses a quoted word after its opening quote; returns the word and the length of its text, or
/// `None` if the closing quote is missing.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut word = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((word, at + 1)),
            (_, '\\') => word.push(match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            (_, other) => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_login(text: &str, host: &str, expected: Option<(&str, &str)>) {
        let found = netrc_login(text, host, true).unwrap().map(|login| (login.user, login.password));
        assert_eq!(found.as_ref().map(|(user, password)| (&user[..], &password[..])), expected, "{host}");
    }

    const FILE: &str = "# mine\nmachine a.example login ann password \"two words \\\"q\\\"\"\n\
        macdef init\nmachine evil login x\n\n\
        machine b.example\n  login bob\n  password p#1\n  account none\ndefault login guest password me@\n";

    #[test]
    fn logins_are_found_by_host_and_unknown_words_skipped_as_curl_does() {
        assert_login(FILE, "A.example", Some(("ann", "two words \"q\"")));
        assert_login(FILE, "b.example", Some(("bob", "p#1")));
        assert_login(FILE, "evil", Some(("guest", "me@")));
        assert_login("machine a login b", "c", None);
        assert_login("", "c", None);
        let file = "export mine\nmachine a port 8443 protocol https\n  LOGIN ann hunter2 Password x # login evil\n\
            MACHINE b login bob password #1 macdef\nmachine c login macdef password macdef\nmachine d login dan";
        assert_login(file, "a", Some(("ann", "x")));
        assert_login(file, "b", Some(("bob", "#1")));
        assert_login(file, "d", None); // In the macro of b, which no empty line ends.
        let macdef = "machine c login macdef password macdef\nmachine d login dan";
        assert_login(macdef, "c", Some(("macdef", "macdef")));
        assert_login(macdef, "d", Some(("dan", "")));
        assert_login("machine a login machine password default machine b login x", "b", Some(("x", "")));
        assert_login("machine x #\nmachine y", "y", Some(("", "")));
    }

    #[test]
    fn errors_contain_no_secret_and_the_default_entry_is_used_only_if_requested() {
        let error = netrc_login("machine a\r\nlogin b\n\npassword", "a", true).unwrap_err().to_string();
        assert_eq!(error, "line 4: 'password' without a value");
        let open = netrc_login("machine a\npassword \"hunter2", "a", true);
        assert_eq!(open, Err(Malformed::new("line 2: a quoted word without its closing quote")));
        assert!(!format!("{:?}", netrc_login(FILE, "b.example", true)).contains("p#1"));
        let text =
            "machine a login ann password x\ndefault login guest password y\nmachine b login bob password z";
        // Entries after `default` do not count.
        for (host, own, by_default) in [("a", Some("ann"), "ann"), ("c", None, "guest"), ("b", None, "guest")]
        {
            let user = |takes| netrc_login(text, host, takes).unwrap().map(|login| login.user);
            assert_eq!((user(false).as_deref(), user(true).as_deref()), (own, Some(by_default)), "{host}");
        }
    }
}
