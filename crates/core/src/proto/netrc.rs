//! The .netrc file: logins by host, as curl and ftp read them.

use std::fmt;

use thiserror::Error;

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

/// Why a .netrc cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NetrcError {
    /// A keyword is not followed by its value.
    #[error("line {line}: '{keyword}' without a value")]
    NoValue {
        /// The line, counted from 1.
        line: usize,
        /// The keyword.
        keyword: String,
    },
    /// A word that is no keyword. It is not shown: it may be a password.
    #[error("line {line}: a word that is none of machine, default, login, password, account, macdef")]
    Unknown {
        /// The line, counted from 1.
        line: usize,
    },
    /// A quoted word does not end on its line.
    #[error("line {line}: a quoted word without its closing quote")]
    Quote {
        /// The line, counted from 1.
        line: usize,
    },
}

/// Finds the login for `host` in the text of a .netrc: its first `machine` entry, else `default`.
///
/// Words may be quoted, with backslash escapes; macro definitions and lines that start with # are skipped.
///
/// # Errors
/// [`NetrcError`] with the line at fault.
pub fn netrc_login(text: &str, host: &str) -> Result<Option<Login>, NetrcError> {
    let mut words = words(text)?.into_iter();
    let mut entry: Option<Login> = None;
    while let Some((line, word)) = words.next() {
        let mut value = || match words.next() {
            Some((_, value)) => Ok(value),
            None => Err(NetrcError::NoValue { line, keyword: word.clone() }),
        };
        match word.as_str() {
            // The entry that matched has ended; `default` comes last by definition, and nothing after it counts.
            "machine" | "default" if entry.is_some() => return Ok(entry),
            "machine" => {
                if value()?.eq_ignore_ascii_case(host) {
                    entry = Some(Login { user: String::new(), password: String::new() });
                }
            }
            "default" => entry = Some(Login { user: String::new(), password: String::new() }),
            "login" | "password" | "account" => {
                let value = value()?;
                if let Some(login) = &mut entry {
                    match word.as_str() {
                        "login" => login.user = value,
                        "password" => login.password = value,
                        _ => {}
                    }
                }
            }
            _ => return Err(NetrcError::Unknown { line }),
        }
    }
    Ok(entry)
}

/// Splits into words with their lines, leaving out comments and macro definitions.
fn words(text: &str) -> Result<Vec<(usize, String)>, NetrcError> {
    let mut found = Vec::new();
    let mut in_macro = false;
    for (index, line) in text.lines().enumerate() {
        if in_macro {
            // A macro ends with an empty line.
            in_macro = !line.trim().is_empty();
            continue;
        }
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                c if c.is_whitespace() => {}
                '#' if line.trim_start().starts_with('#') => break,
                '"' => {
                    found.push((index + 1, quoted(&mut chars).ok_or(NetrcError::Quote { line: index + 1 })?))
                }
                c => {
                    let rest = std::iter::from_fn(|| chars.next_if(|c| !c.is_whitespace()));
                    found.push((index + 1, std::iter::once(c).chain(rest).collect()));
                }
            }
            if found.last().is_some_and(|(at, word)| *at == index + 1 && word == "macdef") {
                found.pop();
                in_macro = true;
                break;
            }
        }
    }
    Ok(found)
}

/// Reads the rest of a quoted word; `None` where it does not end.
fn quoted(chars: &mut impl Iterator<Item = char>) -> Option<String> {
    let mut word = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(word),
            '\\' => word.push(match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn login(text: &str, host: &str) -> Option<(String, String)> {
        netrc_login(text, host).unwrap().map(|l| (l.user, l.password))
    }

    const FILE: &str = "# mine\nmachine a.example login ann password \"two words \\\"q\\\"\"\n\
        macdef init\nmachine evil login x\n\n\
        machine b.example\n  login bob\n  password p#1\n  account none\ndefault login guest password me@\n";

    #[test]
    fn finds_logins() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(login(FILE, "A.example"), pair("ann", "two words \"q\""));
        assert_eq!(login(FILE, "b.example"), pair("bob", "p#1"));
        assert_eq!(login(FILE, "evil"), pair("guest", "me@"));
        assert_eq!(login("machine a login b", "c"), None);
        assert_eq!(login("", "c"), None);
    }

    #[test]
    fn names_the_line_but_no_secret() {
        let error = netrc_login("machine a\nlogin b\nhunter2", "a").unwrap_err();
        assert_eq!(error, NetrcError::Unknown { line: 3 });
        assert!(!error.to_string().contains("hunter2"));
        assert_eq!(
            netrc_login("machine a password", "a").unwrap_err().to_string(),
            "line 1: 'password' without a value"
        );
        assert_eq!(netrc_login("machine \"a", "a"), Err(NetrcError::Quote { line: 1 }));
        assert!(!format!("{:?}", netrc_login(FILE, "b.example")).contains("p#1"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "((machine|login|password|macdef|default|[a\"\\\\# \n])[ \n]?){0,30}") {
            let _ = netrc_login(&text, "a");
        }
    }
}
