//! Parses `Repr-Digest`: the client's digest of the whole file (RFC 9530).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::checksum::{Algorithm, Checksum};

/// Supported algorithms, the fastest first; `blake3` is not registered, and used between Longhaul's own programs.
const KNOWN: [(&str, Algorithm); 3] =
    [("blake3", Algorithm::Blake3), ("sha-256", Algorithm::Sha256), ("sha-512", Algorithm::Sha512)];

/// Parses a dictionary of byte sequences, as in `blake3=:BASE64:, sha-256=:BASE64:` (RFC 9651).
///
/// `None` without a supported algorithm with a digest of the right length: the request must be refused then,
/// or its client would take the file for verified.
pub(crate) fn parse(field: &str) -> Option<Checksum> {
    let digest_of = |name: &str| {
        // The last of several members with one key counts (RFC 9651, section 3.2).
        let mut members = field.rsplit(',').filter_map(|member| member.trim().split_once('='));
        let (_, value) = members.find(|(key, _)| *key == name)?;
        let text = value.strip_prefix(':')?.strip_suffix(':')?;
        STANDARD.decode(text).ok()
    };
    KNOWN.iter().find_map(|(name, algorithm)| Checksum::new(*algorithm, &digest_of(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fastest_supported_digest_is_used() {
        let text = |algorithm: Algorithm, bytes: &[u8]| Checksum::new(algorithm, bytes).unwrap().to_string();
        let zeros = STANDARD.encode([0; 32]);
        for (field, checksum) in [
            (format!("blake3=:{zeros}:"), Some(text(Algorithm::Blake3, &[0; 32]))),
            (format!("md5=:AA==:, sha-256=:{zeros}:"), Some(text(Algorithm::Sha256, &[0; 32]))),
            (format!("sha-256=:{zeros}:,blake3=:{zeros}:"), Some(text(Algorithm::Blake3, &[0; 32]))),
            (format!("blake3={zeros}"), None),
            ("blake3=:AA==:".to_owned(), None),
            ("crc32c=:AA==:".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(parse(&field).map(|found| found.to_string()), checksum, "{field}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(field in "(blake3|sha-256|=|:|,|\\PC){0,20}") {
            let _ = parse(&field);
        }
    }
}
