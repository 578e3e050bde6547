//! Reads the files of a plan: digests, and what differs from the plan.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::digest::{self, WantedDigests};
use longhaul_engine::input_file;

use crate::error::FarmError;
use crate::target_directory::TargetDirectory;
use crate::unit::PlannedFile;

/// Returns the digest of a file of the target; of one that is uploaded, that of its source. `None`
/// if cancelled.
///
/// # Errors
/// The file cannot be read, or a source has changed.
pub fn digest(
    target: Option<&TargetDirectory>,
    file: &PlannedFile,
    algorithm: Algorithm,
    cancel: &Cancel,
) -> Result<Option<Checksum>, FarmError> {
    if let Some(target) = target {
        return digest_at(&target.path_of(file), algorithm, cancel, &|_| ());
    }
    let source = file.open_source().map_err(FarmError::Source)?;
    let digest = digest_of(source.file(), source.path(), algorithm, cancel, &|_| ())?;
    source.check().map_err(FarmError::Source)?;
    Ok(digest)
}

/// How a file of the target compares with its plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// It is as planned.
    Equal,
    /// It differs: how.
    Differs(String),
    /// It was not read to its end.
    Cancelled,
}

/// Reads an open file from its start, and counts what is read.
struct CountedFile<'a> {
    file: &'a File,
    at: u64,
    count: &'a dyn Fn(Bytes),
}

impl Read for CountedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        (self.count)(Bytes::new(read as u64));
        Ok(read)
    }
}

/// Returns the digest of the file at a path, `None` if cancelled; `count` receives the bytes that
/// are read.
fn digest_at(
    path: &Path,
    algorithm: Algorithm,
    cancel: &Cancel,
    count: &dyn Fn(Bytes),
) -> Result<Option<Checksum>, FarmError> {
    // A pipe without a writer must not block.
    let file = input_file::open(path).map_err(FarmError::io("read", path))?;
    digest_of(&file, path, algorithm, cancel, count)
}

/// Returns the digest of an open file as [`digest_at`] does; `path` is for messages.
pub(crate) fn digest_of(
    file: &File,
    path: &Path,
    algorithm: Algorithm,
    cancel: &Cancel,
    count: &dyn Fn(Bytes),
) -> Result<Option<Checksum>, FarmError> {
    let read = || -> io::Result<Option<Checksum>> {
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let wanted = WantedDigests { whole: Some(algorithm), pieces: None };
        let input = CountedFile { file, at: 0, count };
        Ok(digest::of_file(input, wanted, cancel)?.and_then(|digests| digests.whole))
    };
    read().map_err(FarmError::io("read", path))
}

/// Compares a file of the target with its plan. Reads the file only if the plan has a digest.
pub fn compare(target: &TargetDirectory, file: &PlannedFile, cancel: &Cancel) -> Comparison {
    compare_at(&target.path_of(file), file, cancel, &|_| ())
}

/// Compares the file at a path with the plan of it; `count` receives the bytes that are read.
pub(crate) fn compare_at(
    path: &Path,
    file: &PlannedFile,
    cancel: &Cancel,
    count: &dyn Fn(Bytes),
) -> Comparison {
    let differs = |how: &str| Comparison::Differs(how.to_owned());
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => found,
        Ok(_) => return differs("is not a file"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return differs("is missing"),
        Err(error) => return differs(&format!("cannot be read: {error}")),
    };
    let length = Bytes::new(found.len());
    if let Some(size) = file.size.filter(|size| *size != length) {
        return differs(&format!("has {} bytes instead of {}", length.get(), size.get()));
    }
    let Some(wanted) = &file.checksum else { return Comparison::Equal };
    match digest_at(path, wanted.algorithm, cancel, count) {
        Ok(Some(found)) if found == *wanted => Comparison::Equal,
        Ok(Some(found)) => differs(&format!("has the digest {found} instead of {wanted}")),
        Ok(None) => Comparison::Cancelled,
        Err(error) => differs(&error.to_string()),
    }
}
