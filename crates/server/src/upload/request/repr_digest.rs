//! Parses `Repr-Digest`: the client's digest of the whole file (RFC 9530).

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::proto::http::parse_repr_digest;

/// Supported algorithms, the fastest first.
const SUPPORTED: [Algorithm; 3] = [Algorithm::Blake3, Algorithm::Sha256, Algorithm::Sha512];

/// Returns the digest of the fastest supported algorithm, as in `blake3=:BASE64:,
/// sha-256=:BASE64:`.
///
/// `None` without one of the right length: the request must be refused then, or its client would
/// take the file for verified.
pub(crate) fn parse(field: &str) -> Option<Checksum> {
    let digests = parse_repr_digest(field);
    let of = |algorithm| digests.iter().find(|digest| digest.algorithm == algorithm);
    SUPPORTED.into_iter().find_map(of).cloned()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

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
}
