//! Random content, comparison with files, and directory trees with difficult names.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

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

/// Names that listings and URLs must preserve byte for byte.
const NAMES: [&str; 9] =
    ["a b", "100%25", "q?x=1#y", "\u{fc}\u{20ac}", "a&<b>\"'", ".hidden", "...", "a:b;c", "index.html"];

/// Creates a tree under `root`: files of several sizes, difficult names, an empty directory, and
/// old modification times.
pub(crate) fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deeper/deepest")).unwrap();
    fs::create_dir_all(root.join("empty/within")).unwrap();
    fs::create_dir(root.join("dir with space & \u{fc}")).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let content = content(number * 1000, number as u64);
        fs::write(root.join(name), &content).unwrap();
        fs::write(root.join("dir with space & \u{fc}").join(name), &content).unwrap();
    }
    fs::write(root.join("sub/deeper/deepest/large"), content((5 << 20) + 1, 77)).unwrap();
    fs::write(root.join("sub/zero"), "").unwrap();
    age(root, 1_000_000_000);
}

/// Creates `count` small files in three directories.
pub(crate) fn many_files(root: &Path, count: u64) {
    for number in 0..count {
        let directory = root.join(format!("d{}", number % 3));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{number}")), content(number as usize % 5000, number)).unwrap();
    }
    age(root, 1_100_000_000);
}

/// Sets the modification time of every file below `root`.
pub(crate) fn age(root: &Path, seconds: u64) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            age(&path, seconds);
        } else {
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
    }
}

#[track_caller]
pub(crate) fn assert_equal(one: &Path, other: &Path) {
    let diff = Command::new("diff").arg("-r").arg(one).arg(other).output().unwrap();
    assert!(diff.status.success(), "{}", super::text(&diff));
}
