//! A header field to send.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;

/// The reason why a header field cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// The colon is missing.
    #[error("a header without a colon: write 'Name: value'")]
    NoColon,
    /// The name is not a token (RFC 9110, section 5.6.2).
    #[error("the header name '{}' is not a token: use letters, digits and hyphens", .0.escape_debug())]
    Name(String),
    /// The value contains a line break or another control character. The message omits the value,
    /// which may be secret.
    #[error("the value of the header '{0}' holds a control character: remove it")]
    Value(String),
}

/// A valid header field: the name is a token, and the value contains no control character.
///
/// `Debug` hides the value, which may be a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderField {
    name: String,
    value: String,
}

impl HeaderField {
    /// Creates a field; surrounding white space of the value is removed.
    ///
    /// # Errors
    /// [`HeaderError`] if the name is not a token (RFC 9110, section 5.6.2) or the value contains a
    /// control character.
    pub fn new(name: &str, value: &str) -> Result<Self, HeaderError> {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(HeaderError::Name(name.to_owned()));
        }
        let value = value.trim_matches([' ', '\t']);
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(HeaderError::Value(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }

    /// Creates a field with a date (RFC 9110, section 5.6.7); `None` for a time that the format
    /// cannot express.
    pub fn of_date(name: &str, date: SystemTime) -> Option<Self> {
        /// The start of the year 10000, which the format cannot express.
        const END: Duration = Duration::from_secs(253_402_300_800);
        let since_1970 = date.duration_since(SystemTime::UNIX_EPOCH).ok();
        since_1970.filter(|time| *time < END)?;
        Self::new(name, &httpdate::fmt_http_date(date)).ok()
    }

    /// Returns the name as written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether the field has the name `name`, case-insensitive.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl FromStr for HeaderField {
    type Err = HeaderError;

    /// Parses "Name: value".
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').ok_or(HeaderError::NoColon)?;
        Self::new(name, value)
    }
}

impl fmt::Debug for HeaderField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ...", self.name)
    }
}

/// Returns whether a token may contain `byte` (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_is_one_line_and_debug_output_hides_its_value() {
        let field: HeaderField = "Authorization:  Bearer a:b ".parse().unwrap();
        assert_eq!((field.name(), field.value()), ("Authorization", "Bearer a:b"));
        assert!(field.is("authorization") && !format!("{field:?}").contains("Bearer"));
        for text in ["no colon", ": x", "a b: x", "a: x\r\nHost: evil", "a: \0", "a\n: b", "é: x"] {
            assert!(text.parse::<HeaderField>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn date_outside_the_format_gives_no_field() {
        let of = |seconds| {
            HeaderField::of_date("If-Modified-Since", SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert_eq!(of(784_111_777).unwrap().value(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(of(253_402_300_799).is_some() && of(253_402_300_800).is_none());
        assert!(HeaderField::of_date("Date", SystemTime::UNIX_EPOCH - Duration::from_secs(1)).is_none());
    }
}
