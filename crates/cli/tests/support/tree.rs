//! Directory trees with difficult names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use super::content;

/// Names that listings and URLs must preserve byte for byte.
const NAMES: [&[u8]; 9] = [
    b"a b",
    b"100%25",
    b"q?x=1#y",
    b"\xc3\xbc\xe2\x82\xac",
    b"a&<b>\"'",
    b".hidden",
    b"...",
    b"a:b;c",
    b"index.html",
];

/// Creates a tree under `root`: files of several sizes, difficult names, an empty directory, and old modification times.
pub(crate) fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deeper/deepest")).unwrap();
    fs::create_dir_all(root.join("empty/within")).unwrap();
    fs::create_dir(root.join("dir with space & \u{fc}")).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let content = content(number * 1000, number as u64);
        fs::write(root.join(OsStr::from_bytes(name)), &content).unwrap();
        fs::write(root.join("dir with space & \u{fc}").join(OsStr::from_bytes(name)), &content).unwrap();
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

/// Fails unless two trees have equal names and contents.
#[track_caller]
pub(crate) fn assert_equal(one: &Path, other: &Path) {
    let diff = Command::new("diff").arg("-r").arg(one).arg(other).output().unwrap();
    assert!(diff.status.success(), "{}", super::text(&diff));
}
