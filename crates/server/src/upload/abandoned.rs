//! Reports unfinished uploads when the server starts: their reserved space stays allocated until they are resumed or removed.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_names::is_part;

/// The most directory entries scanned, to bound the disk time for a large tree.
const MAX_SCANNED: usize = 100_000;

/// A partial file without an upload in progress.
#[derive(Debug, PartialEq, Eq)]
struct Abandoned {
    path: PathBuf,
    /// The allocated space.
    space: Bytes,
}

/// Logs the unfinished uploads below a directory, on a separate thread.
pub(crate) fn report(root: &Path) {
    let root = root.to_owned();
    let look = move || {
        for Abandoned { path, space } in find(&root, MAX_SCANNED) {
            let path = path.display();
            tracing::info!(%path, %space, "an unfinished upload; if it is not to be resumed, remove the file and its journal");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("abandoned".to_owned()).spawn(look) {
        tracing::warn!(%error, "unfinished uploads are not looked for: no thread can be started");
    }
}

/// Finds partial files below a directory; skips what cannot be read.
fn find(root: &Path, most: usize) -> Vec<Abandoned> {
    let (mut found, mut directories, mut looked) = (Vec::new(), vec![root.to_owned()], 0);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            looked += 1;
            if looked > most {
                return found;
            }
            // Symbolic links are not followed: they may form cycles.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_file() && is_part(entry.file_name().as_encoded_bytes()) => {
                    found.extend(abandoned(&entry));
                }
                _ => {}
            }
        }
    }
    found
}

fn abandoned(entry: &std::fs::DirEntry) -> io::Result<Abandoned> {
    // `st_blocks` counts units of 512 bytes.
    Ok(Abandoned { path: entry.path(), space: Bytes::new(entry.metadata()?.blocks() * 512) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_files_are_found_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        std::os::unix::fs::symlink(dir.path(), below.join("round")).unwrap();
        for name in ["f", "f.longhaul-part", "f.longhaul-journal"] {
            std::fs::write(below.join(name), [7; 10_000]).unwrap();
        }
        let found = find(dir.path(), MAX_SCANNED);
        assert_eq!(found.len(), 1);
        assert!(found[0].path == below.join("f.longhaul-part") && found[0].space >= Bytes::new(10_000));
        assert_eq!(find(dir.path(), 1), []);
        assert_eq!(find(&dir.path().join("none"), MAX_SCANNED), []);
    }
}
