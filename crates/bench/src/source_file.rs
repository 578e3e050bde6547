//! The file to transfer: random data, created once, kept in the page cache; several files are links to one.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use rustix::fs::Advice;

const PIECE: usize = 4 << 20;
const SEED: u64 = 20;

/// A file of seeded random data without repetition.
#[derive(Debug)]
pub(crate) struct BenchFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The file's names in the served directory, one per fetched file.
    pub(crate) names: Vec<String>,
    /// Its size.
    pub(crate) size: Bytes,
    digest: blake3::Hash,
}

impl BenchFile {
    /// Creates the file in `dir`, or reuses the file of an earlier run.
    ///
    /// # Errors
    /// Fails if the directory is not writable or the disk is full.
    pub(crate) fn open(dir: &Path, size: Bytes, files: usize) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let name = format!("random-{}", size.get());
        let path = dir.join(&name);
        if !fs::metadata(&path).is_ok_and(|file| file.len() == size.get()) {
            eprintln!("bench: writing {size} of random data to {}", path.display());
            // Renamed when complete.
            let part = dir.join(format!("{name}.part"));
            write(&part, size).with_context(|| format!("cannot write {}", part.display()))?;
            fs::rename(&part, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        let digest = digest(&path)?;
        let names = if files == 1 {
            vec![name]
        } else {
            link(dir, &path, &format!("several-{}", size.get()), files)?
        };
        Ok(Self { path, names, size, digest })
    }

    /// Returns the size of all files.
    pub(crate) fn total(&self) -> Bytes {
        self.size * self.names.len() as u64
    }

    /// Reads the file into the page cache.
    ///
    /// # Errors
    /// Fails if the file is unreadable.
    pub(crate) fn warm(&self) -> Result<()> {
        let failed = || format!("cannot read {}", self.path.display());
        let mut file = File::open(&self.path).with_context(failed)?;
        let mut piece = vec![0; PIECE];
        while file.read(&mut piece).with_context(failed)? > 0 {}
        Ok(())
    }

    /// Drops the file from the page cache.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub(crate) fn cool(&self) -> Result<()> {
        let failed = || format!("cannot read {}", self.path.display());
        let file = File::open(&self.path).with_context(failed)?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).with_context(failed)
    }

    /// Returns whether `copy` has equal content, by BLAKE3.
    ///
    /// # Errors
    /// Fails if `copy` is unreadable.
    pub(crate) fn equals(&self, copy: &Path) -> Result<bool> {
        Ok(digest(copy)? == self.digest)
    }
}

/// Links the file to numbered names below `directory`, and returns them.
fn link(dir: &Path, path: &Path, directory: &str, files: usize) -> Result<Vec<String>> {
    let failed = || format!("cannot link {} to names in {directory}", path.display());
    fs::create_dir_all(dir.join(directory)).with_context(failed)?;
    let names: Vec<_> = (1..=files).map(|number| format!("{directory}/{number:04}")).collect();
    for name in &names {
        match fs::hard_link(path, dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(failed);
            }
            _ => {}
        }
    }
    Ok(names)
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

fn digest(path: &Path) -> Result<blake3::Hash> {
    let failed = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(failed)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(BufReader::with_capacity(PIECE, file)).with_context(failed)?;
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_created_once_and_detects_a_different_copy() {
        let dir = tempfile::tempdir().unwrap();
        let size = Bytes::new(5_000_001);
        let source = BenchFile::open(dir.path(), size, 1).unwrap();
        let (copy, fake) = (dir.path().join("copy"), dir.path().join("fake"));
        let mut content = fs::read(&source.path).unwrap();
        fs::write(&copy, &content).unwrap();
        content[5_000_000] ^= 1;
        fs::write(&fake, &content).unwrap();
        assert!(source.equals(&copy).unwrap() && !source.equals(&fake).unwrap());
        let made = fs::metadata(&source.path).unwrap().modified().unwrap();
        assert_eq!(BenchFile::open(dir.path(), size, 1).unwrap().digest, source.digest);
        assert_eq!(fs::metadata(&source.path).unwrap().modified().unwrap(), made);
    }

    #[test]
    fn several_files_have_the_same_content_under_different_names() {
        let dir = tempfile::tempdir().unwrap();
        for _again in 0..2 {
            let source = BenchFile::open(dir.path(), Bytes::new(100), 3).unwrap();
            assert_eq!(source.names, ["several-100/0001", "several-100/0002", "several-100/0003"]);
            assert_eq!(source.total(), Bytes::new(300));
            assert!(source.names.iter().all(|name| source.equals(&dir.path().join(name)).unwrap()));
        }
    }
}
