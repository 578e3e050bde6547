//! Digests of what stands on the disk.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use digest::DynDigest;
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::ranges::ByteRange;

use crate::cancel::Cancel;

/// Reads a file from where it stands to its end and returns its checksum; `Ok(None)` where cancelled.
///
/// It reads what is on disk, not what went by: a write that was lost is found too.
///
/// # Errors
/// What the kernel says of the file.
pub fn of(mut file: File, algorithm: Algorithm, cancel: &Cancel) -> io::Result<Option<Checksum>> {
    let mut hasher = hasher(algorithm);
    let mut buf = vec![0; 1 << 20];
    while !cancel.is_cancelled() {
        match file.read(&mut buf)? {
            0 => {
                return Ok(Checksum::new(algorithm, &hasher.finalize()));
            }
            n => hasher.update(&buf[..n]),
        }
    }
    Ok(None)
}

/// Returns the checksum of a part of a file; `Ok(None)` where cancelled.
///
/// # Errors
/// What the kernel says of the file, and that it ends before the part does.
pub fn of_part(
    file: &File,
    part: ByteRange,
    algorithm: Algorithm,
    cancel: &Cancel,
) -> io::Result<Option<Checksum>> {
    let mut hasher = hasher(algorithm);
    let mut buf = vec![0; part.len().get().min(1 << 20) as usize];
    let mut at = part.start();
    while at < part.end() {
        if cancel.is_cancelled() {
            return Ok(None);
        }
        let length = (part.end() - at).min(buf.len() as u64);
        let bytes = &mut buf[..length as usize];
        file.read_exact_at(bytes, at)?;
        hasher.update(bytes);
        at += length;
    }
    Ok(Checksum::new(algorithm, &hasher.finalize()))
}

fn hasher(algorithm: Algorithm) -> Box<dyn DynDigest> {
    match algorithm {
        Algorithm::Md5 => Box::new(md5::Md5::default()),
        Algorithm::Sha1 => Box::new(sha1::Sha1::default()),
        Algorithm::Sha256 => Box::new(sha2::Sha256::default()),
        Algorithm::Sha512 => Box::new(sha2::Sha512::default()),
        Algorithm::Blake3 => Box::new(blake3::Hasher::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_abc() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "abc").unwrap();
        for text in [
            "md5:900150983cd24fb0d6963f7d28e17f72",
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "SHA-256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
            "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ] {
            let wanted: Checksum = text.parse().unwrap();
            let found = of(file.reopen().unwrap(), wanted.algorithm, &Cancel::new()).unwrap();
            assert_eq!(found, Some(wanted));
        }
    }
}
