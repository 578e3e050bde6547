//! Entity tags (RFC 9110, section 8.8.3).

use std::fmt;

/// An entity tag: an opaque identifier of the state of a representation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ETag {
    weak: bool,
    opaque: String,
}

impl ETag {
    /// Parses `"tag"` or `W/"tag"`; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (weak, quoted) = match text.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let opaque = quoted.strip_prefix('"')?.strip_suffix('"')?;
        let legal = |c: char| c == '!' || ('\u{23}'..='\u{7e}').contains(&c) || c >= '\u{80}';
        opaque.chars().all(legal).then(|| Self { weak, opaque: opaque.to_owned() })
    }

    /// Returns whether the tag is weak: equality of weak tags does not imply equality of the bytes.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// Returns whether the tags are equal and both strong (strong comparison, RFC 9110, section
    /// 8.8.3.2).
    pub fn matches_strongly(&self, other: &Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Returns whether the tags are equal, weak or strong (weak comparison).
    pub fn matches_weakly(&self, other: &Self) -> bool {
        self.opaque == other.opaque
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.opaque)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strong_and_weak_tags_are_parsed_and_malformed_ones_refused() {
        let strong = ETag::parse("\"abc\"").unwrap();
        let weak = ETag::parse("W/\"abc\"").unwrap();
        assert!(strong.matches_strongly(&strong) && !weak.matches_strongly(&weak));
        assert!(weak.matches_weakly(&strong) && weak.is_weak());
        assert_eq!(weak.to_string(), "W/\"abc\"");
        for text in ["", "abc", "\"a", "w/\"a\"", "\"a\"b\"", "\"a\r\nb\""] {
            assert_eq!(ETag::parse(text), None, "{text}");
        }
    }
}
