//! The bearer token that permits uploads.

use std::fmt;

use longhaul_core::proto::http::RequestHead;
use thiserror::Error;

/// A bearer token (RFC 6750); `Debug` hides it.
#[derive(Clone)]
pub struct Token {
    /// Digests are compared in constant time, and do not reveal the token's length.
    digest: blake3::Hash,
}

/// Why a text is not a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// An empty token would permit every client.
    #[error("it is empty")]
    Empty,
    /// A header field cannot carry it.
    #[error("it holds other characters than letters, digits and -._~+/=")]
    Characters,
}

impl Token {
    /// Makes a token of a file's text without surrounding white space.
    ///
    /// # Errors
    /// [`TokenError`] for a text that `Authorization: Bearer` cannot carry.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text {
            "" => Err(TokenError::Empty),
            text if !text.bytes().all(fits) => Err(TokenError::Characters),
            text => Ok(Self { digest: blake3::hash(text.as_bytes()) }),
        }
    }

    /// Returns whether a request carries the token.
    pub(crate) fn allows(&self, request: &RequestHead) -> bool {
        let shown = request.header("authorization").and_then(|value| value.split_once(' '));
        shown.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && blake3::hash(token.trim().as_bytes()) == self.digest
        })
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

    fn request(line: &str) -> RequestHead {
        let text = format!("PUT /f HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n");
        RequestHead::parse(text.as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn only_requests_with_the_token_are_allowed() {
        let token = Token::new(" s3cret\n").unwrap();
        assert!(token.allows(&request("Authorization: bearer  s3cret")));
        for line in [
            "X: y",
            "Authorization: Bearer",
            "Authorization: Bearer ",
            "Authorization: Bearer s3cre",
            "Authorization: Bearer s3cret2",
            "Authorization: Basic s3cret",
            "Authorization: s3cret",
        ] {
            assert!(!token.allows(&request(line)), "{line}");
        }
        assert!(!format!("{token:?}").contains("s3cret"));
    }

    #[test]
    fn token_that_no_header_can_carry_is_refused() {
        assert_eq!(Token::new(" \n").unwrap_err(), TokenError::Empty);
        for text in ["two words", "zw\u{f6}lf", "a\nb"] {
            assert_eq!(Token::new(text).unwrap_err(), TokenError::Characters, "{text}");
        }
    }
}
