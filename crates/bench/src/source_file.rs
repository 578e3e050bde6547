//! The file to transfer: random data, created once; several files are links to one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

const PIECE: usize = 4 << 20;
const SEED: u64 = 20;

/// A file of seeded random data without repetition.
#[derive(Debug)]
pub(crate) struct BenchFile {
    /// The file's name in the served directory.
    pub(crate) name: String,
    /// The names under which it is fetched, one per file.
    pub(crate) names: Vec<String>,
    size: Bytes,
}

impl BenchFile {
    /// Names a file of this size.
    pub(crate) fn new(size: Bytes, files: usize) -> Self {
        let name = format!("random-{}", size.get());
        let link = |number| format!("several-{}/{number:04}", size.get());
        let names = if files == 1 { vec![name.clone()] } else { (1..=files).map(link).collect() };
        Self { name, names, size }
    }

    /// Creates the file in `dir`, unless an earlier run has.
    ///
    /// # Errors
    /// Fails if the directory is not writable or the disk is full.
    pub(crate) fn create(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let (path, size) = (dir.join(&self.name), self.size);
        if !fs::metadata(&path).is_ok_and(|file| file.len() == size.get()) {
            eprintln!("bench: writing {size} of random data to {}", path.display());
            // Renamed when complete.
            let part = dir.join(format!("{}.part", self.name));
            write(&part, size).with_context(|| format!("cannot write {}", part.display()))?;
            fs::rename(&part, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        for name in self.names.iter().filter(|name| **name != self.name) {
            let place = dir.join(name);
            link(&path, &place)
                .with_context(|| format!("cannot link {} to {}", path.display(), place.display()))?;
        }
        Ok(())
    }
}

fn link(path: &Path, place: &Path) -> io::Result<()> {
    place.parent().map_or(Ok(()), fs::create_dir_all)?;
    match fs::hard_link(path, place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn write(path: &Path, size: Bytes) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut piece = vec![0; PIECE];
    let mut left = size.get();
    while left > 0 {
        let now = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
        random.fill_bytes(&mut piece[..now]);
        file.write_all(&piece[..now])?;
        left -= now as u64;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_once_with_equal_content_under_different_names() {
        let dir = tempfile::tempdir().unwrap();
        let one = BenchFile::new(Bytes::new(5_000_001), 1);
        let made = || {
            one.create(dir.path()).unwrap();
            let file = fs::metadata(dir.path().join(&one.names[0])).unwrap();
            (file.len(), file.modified().unwrap())
        };
        let first = made();
        assert_eq!((first.0, made()), (5_000_001, first));
        let several = BenchFile::new(Bytes::new(100), 3);
        assert_eq!(several.names, ["several-100/0001", "several-100/0002", "several-100/0003"]);
        for _again in 0..2 {
            several.create(dir.path()).unwrap();
            let content = fs::read(dir.path().join(&several.name)).unwrap();
            assert!(several.names.iter().all(|name| fs::read(dir.path().join(name)).unwrap() == content));
        }
    }
}
