//! A bearer token.

use std::fmt;

use longhaul_core::proto::Malformed;

/// A bearer token (RFC 6750); `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Digests are compared in constant time, and do not reveal the token's length.
    digest: blake3::Hash,
}

impl Token {
    /// Makes a token of a file's text without surrounding white space.
    ///
    /// # Errors
    /// [`Malformed`] for a text that `Authorization: Bearer` cannot carry.
    pub fn new(text: &str) -> Result<Self, Malformed> {
        let text = text.trim();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text {
            // It would permit every client.
            "" => Err(Malformed::new("it is empty")),
            text if !text.bytes().all(fits) => {
                Err(Malformed::new("it holds other characters than letters, digits and -._~+/="))
            }
            text => Ok(Self { digest: blake3::hash(text.as_bytes()) }),
        }
    }

    /// Returns whether `shown` is the token; takes the same time for every other text of its
    /// length.
    pub(super) fn is(&self, shown: &str) -> bool {
        blake3::hash(shown.as_bytes()) == self.digest
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_not_shown_and_one_that_no_header_can_carry_is_refused() {
        let token = Token::new(" s3cret\n").unwrap();
        assert!(token.is("s3cret") && !token.is("s3cre") && !format!("{token:?}").contains("s3cret"));
        assert_eq!(Token::new(" \n").unwrap_err(), Malformed::new("it is empty"));
        for text in ["two words", "zw\u{f6}lf", "a\nb"] {
            assert!(Token::new(text).unwrap_err().to_string().contains("other characters"), "{text}");
        }
    }
}
