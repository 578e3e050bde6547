//! RSA signatures by pinned keys below 2048 bits, as of old appliances. ring verifies none by PSS,
//! which TLS 1.3 requires.

use std::ops::Range;

use longhaul_core::units::Bytes;
use num_bigint::BigUint;
use rustls::SignatureScheme;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_parser::public_key::RSAPublicKey;

/// The lengths of keys that are verified here, in bits. RSA with 829 bits was broken in 2020.
const LENGTHS: Range<u64> = 1024..MIN_OF_RING;
/// The shortest key that ring verifies, in bits.
const MIN_OF_RING: u64 = 2048;

/// Returns the length of the key in bits if ring does not verify it.
pub(crate) fn weak_bits(key: &RSAPublicKey<'_>) -> Option<u64> {
    Some(BigUint::from_bytes_be(key.modulus).bits()).filter(|bits| *bits < MIN_OF_RING)
}

/// Returns whether a weak key made the signature (RFC 8017, sections 8.1.2 and 8.2.2). In TLS 1.3,
/// handshakes have none of PKCS #1 (RFC 8446, section 4.2.3).
pub(crate) fn verifies(
    key: &RSAPublicKey<'_>,
    scheme: SignatureScheme,
    is_tls13: bool,
    message: &[u8],
    signature: &[u8],
) -> bool {
    use SignatureScheme as Scheme;
    let [modulus, exponent, signature] = [key.modulus, key.exponent, signature].map(BigUint::from_bytes_be);
    // The exponent bounds the computation. Keys of whole bytes are the usual ones.
    let bits = modulus.bits();
    let is_usable = LENGTHS.contains(&bits) && bits.is_multiple_of(8) && exponent.bits() <= 64;
    if !is_usable || signature >= modulus {
        return false;
    }
    let encoded = signature.modpow(&exponent, &modulus).to_bytes_be();
    let encoded = [vec![0; Bytes::new(bits / 8).as_usize() - encoded.len()], encoded].concat();
    match scheme {
        Scheme::RSA_PSS_SHA256 => is_pss::<Sha256>(&encoded, message),
        Scheme::RSA_PSS_SHA384 => is_pss::<Sha384>(&encoded, message),
        Scheme::RSA_PSS_SHA512 => is_pss::<Sha512>(&encoded, message),
        _ if is_tls13 => false,
        Scheme::RSA_PKCS1_SHA256 => is_pkcs1(&encoded, 1, &Sha256::digest(message)),
        Scheme::RSA_PKCS1_SHA384 => is_pkcs1(&encoded, 2, &Sha384::digest(message)),
        Scheme::RSA_PKCS1_SHA512 => is_pkcs1(&encoded, 3, &Sha512::digest(message)),
        _ => false,
    }
}

/// Compares with EMSA-PKCS1-v1_5 (RFC 8017, section 9.2) of a digest by the algorithm
/// 2.16.840.1.101.3.4.2.`algorithm`.
fn is_pkcs1(encoded: &[u8], algorithm: u8, digest: &[u8]) -> bool {
    let length = digest.len() as u8;
    let oid = [0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, algorithm];
    let start = [0x30, 17 + length, 0x30, 0x0d];
    let info = [&start[..], &oid, &[0x05, 0x00, 0x04, length], digest].concat();
    let padding = vec![0xff; encoded.len().saturating_sub(info.len() + 3)];
    padding.len() >= 8 && encoded == [&[0x00, 0x01][..], &padding, &[0x00], &info].concat()
}

/// Verifies EMSA-PSS (RFC 8017, section 9.1.2) with a salt as long as the digest (RFC 8446, section
/// 4.2.3).
fn is_pss<D: Digest>(encoded: &[u8], message: &[u8]) -> bool {
    let length = <D as Digest>::output_size();
    let Some(front) = encoded.len().checked_sub(length + 1).filter(|front| *front > length) else {
        return false;
    };
    let (masked, hash) = encoded.split_at(front);
    let (hash, end) = hash.split_at(length);
    if end != [0xbc] || masked[0] & 0x80 != 0 {
        return false;
    }
    let mask =
        (0_u32..).flat_map(|n| D::new().chain_update(hash).chain_update(n.to_be_bytes()).finalize().to_vec());
    let mut block: Vec<u8> = masked.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
    block[0] &= 0x7f;
    let (zeros, salt) = block.split_at(front - length);
    let is_padded =
        zeros.split_last().is_some_and(|(one, zeros)| *one == 1 && zeros.iter().all(|byte| *byte == 0));
    let found = D::new().chain_update([0; 8]).chain_update(D::digest(message)).chain_update(salt).finalize();
    is_padded && found[..] == *hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULUS: &str = "CE35234CCB48AE93293EDE502A8BF6C17258D08A5C1BFC22953B8791D94518555352FB9EAC15BB6AD76D70B9D95B4A1A4A80A1C697951E856A0CA01CA59C33015106ED705D1FFEE9B18FD08646AFDA55BF27E7F4BCC0B6F6923015F84FA4F40F59C2657081195C3BB172DB42D3E5DC54C93D0983E78FE0810DBDA6CCB9E83E09";
    const PSS: &str = "1c36ac279289588c0adc7efc36fcc0d3283fd3062449c2b18b2a9a3aaca23feaf24d0108de48c93ec6249620d3cf83d5f1d1695eb83ac354afb1f72cd183fc7f2971fe166414c041ab742244353585b29da68f74adf4a48f9187b35768c4c1dae397deb94074aa057131d2f7d52030d69d5fc2f57454f526aa12852c759cf819";
    const PKCS1: &str = "6aa09922a64185745fef16d89b8f802414923f06783a79269f968f7d4aa8212ffc430ed15f63bc5d5b2fff0c12b2f7de5b8c4e318f3260092d4278212b1fe1a4fc96c690f9d24b38a22ed0835e0b19be40042d64769f4a79906a0d34a019ddebec9d9c6f7f5e0f5e83291927c31efd5f7f1453de179fb582d72fab960aa10dbf";

    fn bytes(hex: &str) -> Vec<u8> {
        BigUint::parse_bytes(hex.as_bytes(), 16).unwrap().to_bytes_be()
    }

    #[test]
    fn signature_by_a_key_of_1024_bits_is_verified() {
        let modulus = [vec![0], bytes(MODULUS)].concat();
        let key = RSAPublicKey { modulus: &modulus, exponent: &[1, 0, 1] };
        for (scheme, signature) in
            [(SignatureScheme::RSA_PSS_SHA384, PSS), (SignatureScheme::RSA_PKCS1_SHA256, PKCS1)]
        {
            let signature = bytes(signature);
            let verify =
                |scheme, is_tls13, text: &[u8], made: &[u8]| verifies(&key, scheme, is_tls13, text, made);
            let is_pss = scheme == SignatureScheme::RSA_PSS_SHA384;
            assert!(verify(scheme, false, b"hello", &signature), "{scheme:?}");
            assert_eq!(verify(scheme, true, b"hello", &signature), is_pss, "{scheme:?}");
            assert!(!verify(scheme, false, b"hellp", &signature), "{scheme:?}");
            assert!(!verify(SignatureScheme::RSA_PSS_SHA256, false, b"hello", &signature), "{scheme:?}");
            let other = [&signature[..127], &[signature[127] ^ 1]].concat();
            assert!(!verify(scheme, false, b"hello", &other), "{scheme:?}");
        }
    }
}
