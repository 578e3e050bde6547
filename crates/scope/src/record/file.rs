//! The file of a record: opened with care, written until that fails.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::RecordError;
use super::schema::{Header, MAGIC};

/// The file, until writing to it fails.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    out: BufWriter<File>,
    line: Vec<u8>,
    failed: Option<io::Error>,
}

impl RecordFile {
    /// Creates it, or replaces a record that stands there, and writes the first line.
    pub(super) fn create(path: &Path, header: &Header) -> Result<Self, RecordError> {
        let out = BufWriter::with_capacity(64 << 10, open(path)?);
        let mut this = Self { path: path.to_owned(), out, line: Vec::new(), failed: None };
        match this.try_write(header).and_then(|()| this.out.flush()) {
            Ok(()) => Ok(this),
            Err(source) => Err(RecordError::Create { path: this.path, source }),
        }
    }

    /// Writes a line.
    pub(super) fn write(&mut self, line: &impl Serialize) {
        self.attempt(|this| this.try_write(line));
    }

    fn try_write(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    /// Hands over to the kernel what was written.
    pub(super) fn flush(&mut self) {
        self.attempt(|this| this.out.flush());
    }

    /// Does nothing any more once anything has failed: a line in the middle must not be missing.
    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failed.is_none()
            && let Err(error) = write(self)
        {
            tracing::warn!("the record {} ends here: {error}; the transfer goes on", self.path.display());
            self.failed = Some(error);
        }
    }

    /// Waits until all is on the disk; says what has failed.
    pub(super) fn finish(mut self) -> Result<(), RecordError> {
        self.flush();
        self.attempt(|this| this.out.get_ref().sync_all());
        match self.failed {
            Some(source) => Err(RecordError::Write { path: self.path, source }),
            None => Ok(()),
        }
    }
}

/// Opens a regular file for writing; empties it only where nothing but a record is lost.
fn open(path: &Path) -> Result<File, RecordError> {
    let fail = |source| RecordError::Create { path: path.to_owned(), source };
    let occupied = |what| RecordError::Occupied { path: path.to_owned(), what };
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(occupied("a directory")),
        // Opening a pipe would wait for its reader.
        Ok(meta) if !meta.is_file() => return Err(occupied("a device or a pipe")),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
    match file.try_lock() {
        // Where the file system knows no locks there is none.
        Ok(()) | Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => return Err(RecordError::Busy { path: path.to_owned() }),
    }
    let begin = format!(r#"{{"record":"{MAGIC}""#);
    let mut found = Vec::new();
    (&mut file).take(begin.len() as u64).read_to_end(&mut found).map_err(fail)?;
    if !begin.as_bytes().starts_with(&found) {
        return Err(occupied("a file with something else in it"));
    }
    file.rewind().and_then(|()| file.set_len(0)).map_err(fail)?;
    Ok(file)
}
