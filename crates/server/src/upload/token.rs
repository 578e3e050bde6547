//! The secret that lets a client write.

use std::fmt;

use longhaul_core::proto::http::RequestHead;
use thiserror::Error;

/// A bearer token (RFC 6750); `Debug` hides it.
#[derive(Clone)]
pub struct Token {
    /// Digests are compared in constant time, and tell nothing of the token's length.
    digest: blake3::Hash,
}

/// Why a text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Everybody could write.
    #[error("it is empty")]
    Empty,
    /// No client could send it.
    #[error("it holds other characters than letters, digits and -._~+/=")]
    Characters,
}

impl Token {
    /// Takes a token as it stands in a file, spaces and lines around it excepted.
    ///
    /// # Errors
    /// [`TokenError`] for what no `Authorization: Bearer` can carry.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text {
            "" => Err(TokenError::Empty),
            text if !text.bytes().all(fits) => Err(TokenError::Characters),
            text => Ok(Self { digest: blake3::hash(text.as_bytes()) }),
        }
    }

    /// Returns whether a request shows it.
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
    fn only_the_token_itself_is_let_in() {
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
    fn what_no_client_can_send_is_no_token() {
        assert_eq!(Token::new(" \n").unwrap_err(), TokenError::Empty);
        for text in ["two words", "zw\u{f6}lf", "a\nb"] {
            assert_eq!(Token::new(text).unwrap_err(), TokenError::Characters, "{text}");
        }
    }
}
