//! CKSM: checksums computed by the server (GFD.47, section 5.1).

use super::Reply;
use crate::checksum::{Algorithm, Checksum};

/// Returns the name of an algorithm in CKSM; `None` if GridFTP does not define one.
pub fn checksum_algorithm_name(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::Md5 => Some("MD5"),
        Algorithm::Sha1 => Some("SHA1"),
        Algorithm::Sha256 => Some("SHA256"),
        Algorithm::Sha512 => Some("SHA512"),
        _ => None,
    }
}

/// Parses the reply 213 to CKSM; `None` for any other reply, and for a digest of another length.
pub fn parse_checksum(reply: &Reply, algorithm: Algorithm) -> Option<Checksum> {
    let hex = (reply.code == 213).then(|| reply.last_line().trim())?;
    Checksum::from_hex(algorithm, hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "900150983cd24fb0d6963f7d28e17f72";

    #[test]
    fn only_digests_of_the_algorithm_are_accepted() {
        let reply = |code, text: &str| Reply::of(code, &[text]);
        let expected = Checksum::from_hex(Algorithm::Md5, ABC);
        assert_eq!(parse_checksum(&reply(213, &ABC.to_uppercase()), Algorithm::Md5), expected);
        assert!(expected.is_some());
        assert_eq!(parse_checksum(&reply(213, ABC), Algorithm::Sha256), None);
        for other in [reply(250, ABC), reply(213, ""), Reply::of(213, &[])] {
            assert_eq!(parse_checksum(&other, Algorithm::Md5), None, "{other:?}");
        }
    }
}
