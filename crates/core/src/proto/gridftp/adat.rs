//! Security tokens in base64 on an FTP control connection (RFC 2228, section 3).
//!
//! ```text
//! ADAT <base64>          235 | 335 ADAT=<base64>      during authentication
//! ENC <base64>           632 <base64>                 afterwards: one protected command or reply
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Reply;
use crate::proto::Malformed;

/// The largest token accepted, in bytes. A TLS handshake with a chain of ten certificates takes 20
/// KiB.
const MAX_TOKEN: usize = 256 * 1024;

/// Encodes a token as the argument of ADAT or ENC.
pub fn encode_token(token: &[u8]) -> String {
    STANDARD.encode(token)
}

/// Decodes the token in a 235 or 335 reply; `None` if it has none.
///
/// # Errors
/// [`Malformed`] if the text after `ADAT=` is not a token.
pub fn adat_token(reply: &Reply) -> Result<Option<Vec<u8>>, Malformed> {
    let found = reply.lines.iter().find_map(|line| line.trim_start().strip_prefix("ADAT="));
    found.map(decode_token).transpose()
}

/// Decodes the token that is the whole text of one line of a 631, 632 or 633 reply.
///
/// # Errors
/// [`Malformed`] if the text is not a token.
pub fn decode_token(text: &str) -> Result<Vec<u8>, Malformed> {
    let text = text.trim();
    if text.len() > MAX_TOKEN / 3 * 4 + 4 {
        return Err(Malformed::new(format!("a security token is longer than {MAX_TOKEN} bytes")));
    }
    STANDARD.decode(text).map_err(|_| Malformed::new("a security token is not base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_decoded_as_encoded_and_garbage_refused() {
        assert_eq!(encode_token(b"\x17\x03"), "FwM=");
        assert_eq!(adat_token(&Reply::of(335, &["ADAT=FwM="])), Ok(Some(b"\x17\x03".to_vec())));
        assert_eq!(adat_token(&Reply::of(335, &["GSSAPI Authentication succeeded"])), Ok(None));
        assert_eq!(adat_token(&Reply::of(335, &["some text", " ADAT=MA=="])), Ok(Some(b"0".to_vec())));
        assert_eq!(decode_token(" FwM= "), Ok(b"\x17\x03".to_vec()));
        assert!(adat_token(&Reply::of(335, &["ADAT=%%"])).is_err());
        for (text, why) in [("FwM", "not base64"), (&"A".repeat(MAX_TOKEN * 2), "longer than")] {
            assert!(decode_token(text).unwrap_err().to_string().contains(why), "{why}");
        }
    }
}
