//! The path that a request's target names, decoded once and free of tricks.

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// Why a target names nothing that could be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Neither `/path` nor `http://host/path`.
    #[error("the target is neither a path nor an http URL")]
    Form,
    /// A segment is `..` once decoded: a client resolves those itself (RFC 3986, section 5.2.4).
    #[error("the target climbs with '..'")]
    Climbs,
    /// A segment holds a NUL or an encoded slash, which no file's name can.
    #[error("the target holds a NUL or an encoded slash")]
    ForbiddenByte,
}

/// The path of a request: names from the root down, and whether a slash ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPath {
    names: Vec<Vec<u8>>,
    trailing_slash: bool,
    query: Option<String>,
}

impl TargetPath {
    /// Reads origin-form and absolute-form targets (RFC 9112, section 3.2).
    ///
    /// Each name is percent-decoded once; empty names and `.` vanish; `..` is refused, so nothing
    /// that is accepted leaves the root even before the kernel is asked to make sure.
    pub fn parse(target: &str) -> Result<Self, TargetError> {
        let path = match target.split_once("://") {
            Some((scheme, rest))
                if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") =>
            {
                rest.find(['/', '?']).map_or("/", |start| &rest[start..])
            }
            _ if target.starts_with('/') => target,
            _ => return Err(TargetError::Form),
        };
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (path, None),
        };
        let mut names = Vec::new();
        let mut trailing_slash = true;
        for segment in path.split('/') {
            let name: Vec<u8> = percent_decode_str(segment).collect();
            if name.iter().any(|b| matches!(b, 0 | b'/')) {
                return Err(TargetError::ForbiddenByte);
            }
            trailing_slash = matches!(name.as_slice(), b"" | b".");
            match name.as_slice() {
                b"" | b"." => {}
                b".." => return Err(TargetError::Climbs),
                _ => names.push(name),
            }
        }
        Ok(Self { names, trailing_slash, query })
    }

    /// Returns the names from the root down; none is empty, `.` or `..`, none holds `/` or NUL.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Returns whether the path ends in a slash, as that of a directory does.
    pub fn has_trailing_slash(&self) -> bool {
        self.trailing_slash
    }

    /// Returns what follows the `?`, not decoded.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Returns whether a name starts with a dot: hidden files, by custom.
    pub fn is_hidden(&self) -> bool {
        self.names.iter().any(|name| name.first() == Some(&b'.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(target: &str) -> Vec<String> {
        let path = TargetPath::parse(target).unwrap();
        path.names().iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect()
    }

    #[test]
    fn decodes_once() {
        assert_eq!(names("/a%20b/%252e%252e/c?d=/e"), ["a b", "%2e%2e", "c"]);
        assert_eq!(names("http://h:1/x/"), ["x"]);
        assert_eq!(names("http://h"), [""; 0]);
        assert_eq!(names("//a///./b//"), ["a", "b"]);
        assert_eq!(names("/100%"), ["100%"]);
        assert_eq!(TargetPath::parse("http://h?q").unwrap().query(), Some("q"));
    }

    #[test]
    fn sees_the_trailing_slash() {
        for (target, trailing) in
            [("/", true), ("/a", false), ("/a/", true), ("/a/.", true), ("/a?b/", false)]
        {
            assert_eq!(TargetPath::parse(target).unwrap().has_trailing_slash(), trailing, "{target}");
        }
    }

    #[test]
    fn refuses_what_climbs_or_lies() {
        for (target, error) in [
            ("/..", TargetError::Climbs),
            ("/a/%2e%2e/b", TargetError::Climbs),
            ("/a/.%2E", TargetError::Climbs),
            ("/a%00b", TargetError::ForbiddenByte),
            ("/a%2fb", TargetError::ForbiddenByte),
            ("/..%2f..%2fetc", TargetError::ForbiddenByte),
            ("etc/passwd", TargetError::Form),
            ("*", TargetError::Form),
            ("file:///etc", TargetError::Form),
        ] {
            assert_eq!(TargetPath::parse(target), Err(error), "{target}");
        }
    }

    #[test]
    fn knows_hidden_names() {
        assert!(TargetPath::parse("/a/.git/config").unwrap().is_hidden());
        assert!(!TargetPath::parse("/a/b.c").unwrap().is_hidden());
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_stays_below(target in "(/|%2[eEfF]|\\.|%00|[a-z%?:]|\\PC){0,40}") {
            if let Ok(path) = TargetPath::parse(&target) {
                for name in path.names() {
                    prop_assert!(!matches!(name.as_slice(), b"" | b"." | b".."));
                    prop_assert!(!name.contains(&b'/') && !name.contains(&0));
                }
            }
        }
    }
}
