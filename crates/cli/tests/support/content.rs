//! Random content, and comparison with files.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Creates `len` pseudo-random bytes, determined by the seed.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; len];
    for word in bytes.chunks_mut(8) {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    bytes
}

/// Returns the SHA-256 digest in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fails unless the file at `path` equals `expected`; names the first difference.
pub(crate) fn same(path: impl AsRef<Path>, expected: &[u8]) {
    let path = path.as_ref();
    let found = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Compared byte by byte only on a mismatch: that is slow in a debug build.
    let at = || found.iter().zip(expected).position(|(a, b)| a != b);
    let lengths = || format!("{} bytes instead of {}", found.len(), expected.len());
    assert!(found == expected, "{}: {}, first difference at {:?}", path.display(), lengths(), at());
}

/// Lists the files in `directory` that a transfer left for the next run.
pub(crate) fn partial_files(directory: &Path) -> Vec<String> {
    super::names(directory).into_iter().filter(|name| name.contains(".longhaul-")).collect()
}
