//! A header field that we send.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;

/// Why a header field cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// There is no colon.
    #[error("a header without a colon: write 'Name: value'")]
    NoColon,
    /// The name is empty or holds a character that RFC 9110 forbids in a token.
    #[error("the header name '{}' is not a token: use letters, digits and hyphens", .0.escape_debug())]
    Name(String),
    /// The value holds a line break or another control character. The value is not shown: it may be secret.
    #[error("the value of the header '{0}' holds a control character: remove it")]
    Value(String),
}

/// A header field that is safe to send: a token, and a value without line breaks.
///
/// `Debug` hides the value, which may be a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct HeaderField {
    name: String,
    value: String,
}

impl HeaderField {
    /// Makes a field; the value loses surrounding white space.
    ///
    /// # Errors
    /// [`HeaderError`] where the name is no token (RFC 9110, section 5.6.2) or the value holds a control character.
    pub fn new(name: &str, value: &str) -> Result<Self, HeaderError> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(HeaderError::Name(name.to_owned()));
        }
        let value = value.trim_matches([' ', '\t']);
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(HeaderError::Value(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }

    /// Makes a field of a date (RFC 9110, section 5.6.7); `None` for a time that it cannot write.
    pub fn of_date(name: &str, date: SystemTime) -> Option<Self> {
        /// The first second of the year 10000, which the format cannot write.
        const END: Duration = Duration::from_secs(253_402_300_800);
        let since_1970 = date.duration_since(SystemTime::UNIX_EPOCH).ok();
        since_1970.filter(|time| *time < END)?;
        Self::new(name, &httpdate::fmt_http_date(date)).ok()
    }

    /// Returns the name as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns whether this is the field called `name`, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl FromStr for HeaderField {
    type Err = HeaderError;

    /// Reads "Name: value".
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_field_and_hides_its_value() {
        let field: HeaderField = "Authorization:  Bearer a:b ".parse().unwrap();
        assert_eq!((field.name(), field.value()), ("Authorization", "Bearer a:b"));
        assert!(field.is("authorization") && !format!("{field:?}").contains("Bearer"));
    }

    #[test]
    fn date_that_cannot_be_written_makes_no_field() {
        let of = |seconds| {
            HeaderField::of_date("If-Modified-Since", SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert_eq!(of(784_111_777).unwrap().value(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(of(253_402_300_799).is_some() && of(253_402_300_800).is_none());
        assert!(HeaderField::of_date("Date", SystemTime::UNIX_EPOCH - Duration::from_secs(1)).is_none());
    }

    #[test]
    fn refuses_what_would_split_the_head() {
        for text in ["no colon", ": x", "a b: x", "a: x\r\nHost: evil", "a: \0", "a\n: b", "é: x"] {
            assert!(text.parse::<HeaderField>().is_err(), "{text:?}");
        }
    }
}
