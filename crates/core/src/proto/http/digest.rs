//! Digests of the whole file in a head: Digest (RFC 3230) and Repr-Digest (RFC 9530).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::checksum::{Algorithm, Checksum};

/// Parses a Repr-Digest value: a dictionary of byte sequences (RFC 9651), as in `sha-256=:BASE64:`.
///
/// Unknown algorithms and digests of a wrong length are skipped. The last value of a repeated key
/// counts (RFC 9651, section 3.2).
pub fn parse_repr_digest(value: &str) -> Vec<Checksum> {
    let digest = |member: &str| {
        let (key, value) = member.trim().split_once('=')?;
        let (text, parameters) = value.strip_prefix(':')?.split_once(':')?;
        let whole = parameters.trim().is_empty() || parameters.trim_start().starts_with(';');
        let algorithm = algorithm_of(key).filter(|_| whole)?;
        Checksum::new(algorithm, &STANDARD.decode(text).ok()?)
    };
    let mut found: Vec<Checksum> = Vec::new();
    for checksum in value.rsplit(',').filter_map(digest) {
        if found.iter().all(|known| known.algorithm != checksum.algorithm) {
            found.push(checksum);
        }
    }
    found
}

/// Parses a Digest value, as in `SHA-256=BASE64,md5=BASE64`; unknown algorithms are skipped.
pub(super) fn parse_digest(value: &str) -> Vec<Checksum> {
    let digest = |member: &str| {
        let (name, text) = member.trim().split_once('=')?;
        Checksum::new(algorithm_of(&name.trim().to_ascii_lowercase())?, &STANDARD.decode(text.trim()).ok()?)
    };
    value.split(',').filter_map(digest).collect()
}

/// Returns the algorithm of a key; `blake3` is specific to Longhaul (docs/uploads.md).
fn algorithm_of(key: &str) -> Option<Algorithm> {
    match key {
        "blake3" => Some(Algorithm::Blake3),
        "sha-512" => Some(Algorithm::Sha512),
        "sha-256" => Some(Algorithm::Sha256),
        "sha" => Some(Algorithm::Sha1),
        "md5" => Some(Algorithm::Md5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(checksums: &[Checksum]) -> Vec<String> {
        checksums.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn digests_of_both_fields_are_parsed() {
        let (zeros, ones) = (STANDARD.encode([0; 32]), STANDARD.encode([0xff; 32]));
        let hex = |digits: &str| digits.repeat(32);
        for (value, expected) in [
            (format!("sha-256=:{zeros}:"), vec![format!("sha256:{}", hex("00"))]),
            (format!("sha-256=:{zeros}:;x=1"), vec![format!("sha256:{}", hex("00"))]),
            (format!("sha-256=:{zeros}:, sha-256=:{ones}:"), vec![format!("sha256:{}", hex("ff"))]),
            (format!("blake3=:{zeros}:"), vec![format!("blake3:{}", hex("00"))]),
            (format!("sha-256={zeros}"), vec![]),
            (format!("sha-256=:{zeros}: x"), vec![]),
            (format!("SHA-256=:{zeros}:"), vec![]),
            ("sha-256=:AA==:".to_owned(), vec![]),
            (format!("crc32c=:{zeros}:"), vec![]),
            (String::new(), vec![]),
        ] {
            assert_eq!(texts(&parse_repr_digest(&value)), expected, "{value}");
        }
        // Base64 of the hexadecimal digits, as in the examples of RFC 6249: 64 bytes, which is not
        // a SHA-256 digest.
        let value = "SHA-256=MWVkMWQxYTRiMzk5MDQ0MzI3NGU5NDEyZTk5OWY1ZGFmNzgyZTJlODYzYjRjYzFhOTlmNTQwYzI2M2QwM2U2MQ==";
        assert_eq!(parse_digest(value), []);
        // A SHA-256 digest is in the tests of response heads.
        let value = "adler32=03da0195,unixsum=30637, MD5 = HUXZLQLMuI/KZ5KDcJPcOA==";
        assert_eq!(texts(&parse_digest(value)), ["md5:1d45d92d02ccb88fca6792837093dc38"]);
    }
}
