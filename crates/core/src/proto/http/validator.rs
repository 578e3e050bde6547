//! Strong validators of one state of a file, which permit combining its parts.

use std::fmt;
use std::time::Duration;

use super::ETag;

/// A strong validator for If-Range (RFC 9110, section 13.1.5): equal validators imply equal bytes.
///
/// `Display` formats the field's value, which [`Validator::parse`] accepts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Validator {
    /// A strong entity tag.
    ETag(ETag),
    /// A modification date, exactly as the server sent it, because servers compare it as text.
    LastModified(String),
}

impl Validator {
    /// Chooses the best validator of a response: a strong ETag, or else Last-Modified if it is
    /// strong.
    ///
    /// A date is strong if it is at least one second before the response's Date (RFC 9110, section
    /// 8.8.2.2): only then can the file not have changed twice within that second.
    pub fn choose(etag: Option<&str>, last_modified: Option<&str>, date: Option<&str>) -> Option<Self> {
        if let Some(tag) = etag.and_then(ETag::parse).filter(|tag| !tag.is_weak()) {
            return Some(Self::ETag(tag));
        }
        let text = last_modified?.trim();
        let modified = httpdate::parse_http_date(text).ok()?;
        let answered = httpdate::parse_http_date(date?.trim()).ok()?;
        let age = answered.duration_since(modified).ok()?;
        (age >= Duration::from_secs(1)).then(|| Self::LastModified(text.to_owned()))
    }

    /// Parses a value of If-Range; `None` for a weak tag, and for text that is neither a tag nor a
    /// date.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(tag) = ETag::parse(text) {
            return (!tag.is_weak()).then_some(Self::ETag(tag));
        }
        let text = text.trim();
        httpdate::parse_http_date(text).ok().map(|_| Self::LastModified(text.to_owned()))
    }
}

impl fmt::Display for Validator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ETag(tag) => tag.fmt(f),
            Self::LastModified(date) => f.write_str(date),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEXT_SECOND: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn strong_tag_is_preferred_and_a_weak_date_refused() {
        for (tag, modified, date, chosen) in [
            (Some("\"a\""), OLD, Some(NEXT_SECOND), Some("\"a\"")),
            (Some("W/\"a\""), OLD, Some(NEXT_SECOND), Some(OLD)),
            (None, OLD, Some(OLD), None),
            (None, NEXT_SECOND, Some(OLD), None),
            (None, OLD, None, None),
            (Some("W/\"a\""), "yesterday", Some(OLD), None),
        ] {
            let found = Validator::choose(tag, Some(modified), date).map(|found| found.to_string());
            assert_eq!(found.as_deref(), chosen, "{tag:?}, {modified}, {date:?}");
        }
        // What is formatted is parsed as equal.
        for text in ["\"a\"", OLD] {
            assert_eq!(Validator::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Validator::parse("W/\"a\""), None);
        assert_eq!(Validator::parse("a"), None);
    }
}
