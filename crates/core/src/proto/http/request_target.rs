//! The decoded and checked path of a request's target.

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The reason why a target is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Neither `/path` nor `http://host/path`.
    #[error("the target is neither a path nor an http URL")]
    Form,
    /// A decoded segment is `..`: a client resolves such segments itself (RFC 3986, section 5.2.4).
    #[error("the target contains '..'")]
    Climbs,
    /// A segment contains a NUL or an encoded slash, which no file name can contain.
    #[error("the target contains a NUL or an encoded slash")]
    ForbiddenByte,
}

/// The path of a request: the names from the root to the file, and whether a slash ends the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPath {
    names: Vec<Vec<u8>>,
    trailing_slash: bool,
    query: Option<String>,
}

impl TargetPath {
    /// Parses origin-form and absolute-form targets (RFC 9112, section 3.2).
    ///
    /// Each name is percent-decoded once; empty names and `.` are removed; `..` is refused, so that
    /// no accepted path leaves the root, independent of the kernel's checks.
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

    /// Returns the names from the root to the file; none is empty, `.` or `..`, none contains `/`
    /// or NUL.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Returns whether the path ends in a slash, like the path of a directory.
    pub fn has_trailing_slash(&self) -> bool {
        self.trailing_slash
    }

    /// Returns the text after the `?`, not decoded.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Returns whether a name begins with a dot and so is hidden.
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
    fn names_are_decoded_once_and_hidden_ones_reported() {
        for (target, expected) in [
            ("/a%20b/%252e%252e/c?d=/e", &["a b", "%2e%2e", "c"][..]),
            ("http://h:1/x/", &["x"]),
            ("http://h", &[]),
            ("//a///./b//", &["a", "b"]),
            ("/100%", &["100%"]),
        ] {
            assert_eq!(names(target), expected, "{target}");
        }
        assert_eq!(TargetPath::parse("http://h?q").unwrap().query(), Some("q"));
        let cases = [("/", true), ("/a", false), ("/a/", true), ("/a/.", true), ("/a?b/", false)];
        for (target, trailing) in cases {
            assert_eq!(TargetPath::parse(target).unwrap().has_trailing_slash(), trailing, "{target}");
        }
        let is_hidden = |target| TargetPath::parse(target).unwrap().is_hidden();
        assert_eq!(["/a/.git/config", "/a/b.c"].map(is_hidden), [true, false]);
    }

    #[test]
    fn paths_that_leave_the_root_are_refused() {
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

    proptest! {
        #[test]
        fn accepted_paths_stay_below_the_root(target in "(/|%2[eEfF]|\\.|%00|[a-z%?:]|\\PC){0,40}") {
            if let Ok(path) = TargetPath::parse(&target) {
                for name in path.names() {
                    prop_assert!(!matches!(name.as_slice(), b"" | b"." | b".."));
                    prop_assert!(!name.contains(&b'/') && !name.contains(&0));
                }
            }
        }
    }
}
