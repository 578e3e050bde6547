//! The file of a record: opened without loss of other data, replaced late, written until the first
//! error.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use longhaul_core::failure::{Failure, FailureKind};
use serde::Serialize;

use super::schema::{Header, MAGIC};

/// Maximum bytes held back while an earlier record remains; thousands of lines, where a few are
/// usual.
const MAX_HELD_BYTES: usize = 8 << 20;

/// The file of a record, until writing to it fails.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    out: BufWriter<File>,
    line: Vec<u8>,
    /// Lines held back while an earlier record remains.
    held: Option<Vec<u8>>,
    /// Lines dropped while an earlier record was kept.
    pub(super) dropped: u64,
    failed: Option<io::Error>,
}

/// Treatment of an earlier record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Earlier {
    /// Replaced at once.
    Replaced,
    /// Kept until [`RecordFile::replace`]; forever without that call.
    Kept,
}

impl RecordFile {
    /// Creates the file, or opens an earlier record, and writes the first line.
    pub(super) fn create(path: &Path, header: &Header, earlier: Earlier) -> Result<Self, Failure> {
        let fail = |error| not_created(path, &error);
        let file = open(path)?;
        let is_empty = file.metadata().map_err(fail)?.len() == 0;
        let held = (!is_empty && earlier == Earlier::Kept).then(Vec::new);
        if held.is_none() {
            file.set_len(0).map_err(fail)?;
        }
        let out = BufWriter::with_capacity(64 << 10, file);
        let mut this = Self { path: path.to_owned(), out, line: Vec::new(), held, dropped: 0, failed: None };
        this.try_write(header).and_then(|()| this.out.flush()).map_err(fail)?;
        Ok(this)
    }

    /// Replaces an earlier record by all lines held back.
    pub(super) fn replace(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.attempt(|this| {
            this.out.get_ref().set_len(0)?;
            this.out.write_all(&held)?;
            this.out.flush()
        });
    }

    /// Writes a line.
    pub(super) fn write(&mut self, line: &impl Serialize) {
        self.attempt(|this| this.try_write(line));
    }

    fn try_write(&mut self, line: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        match &mut self.held {
            None => return self.out.write_all(&self.line),
            Some(held) if held.len() + self.line.len() <= MAX_HELD_BYTES => {
                held.extend_from_slice(&self.line)
            }
            Some(_) => self.dropped += 1,
        }
        Ok(())
    }

    /// Flushes buffered lines to the kernel.
    pub(super) fn flush(&mut self) {
        self.attempt(|this| this.out.flush());
    }

    /// Runs a write unless an earlier one failed: a record must not lack a line in the middle.
    fn attempt(&mut self, write: impl FnOnce(&mut Self) -> io::Result<()>) {
        if self.failed.is_none()
            && let Err(error) = write(self)
        {
            tracing::warn!("the record {} ends here: {error}; the transfer goes on", self.path.display());
            self.failed = Some(error);
        }
    }

    /// Syncs the file; returns the first error.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        self.attempt(|this| this.out.get_ref().sync_all());
        match self.failed {
            Some(error) => Err(not_written(&self.path, &error)),
            None => Ok(()),
        }
    }
}

fn not_created(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureKind::CannotCreate, format!("cannot create the record {}: {error}", path.display()))
}

pub(super) fn not_written(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    let message = format!("cannot write the record {path}: {error}; what was written before can be used");
    Failure::new(FailureKind::Disk, message)
}

/// Opens a regular file for writing, locks it, and checks that it holds nothing but a record.
fn open(path: &Path) -> Result<File, Failure> {
    let fail = |error| not_created(path, &error);
    let occupied = |what: &str| {
        let path = path.display();
        let remedy = "name another file for the record, or remove it";
        Failure::new(FailureKind::CannotCreate, format!("{path} is {what}, and no record: {remedy}"))
    };
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(occupied("a directory")),
        // Opening a pipe would block until it has a reader.
        Ok(meta) if !meta.is_file() => return Err(occupied("a device or a pipe")),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
    match file.try_lock() {
        // The file system may not support locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => {
            let message = format!("another transfer writes the record {}: name another file", path.display());
            return Err(Failure::new(FailureKind::CannotCreate, message));
        }
    }
    let begin = format!(r#"{{"record":"{MAGIC}""#);
    let mut found = Vec::new();
    (&mut file).take(begin.len() as u64).read_to_end(&mut found).map_err(fail)?;
    if !begin.as_bytes().starts_with(&found) {
        return Err(occupied("a file with something else in it"));
    }
    file.rewind().map_err(fail)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::test_record;
    use crate::record::schema::Sample;

    #[test]
    fn held_back_lines_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.jsonl");
        let earlier = r#"{"record":"longhaul", cut off"#;
        std::fs::write(&path, earlier).unwrap();
        let header = test_record::record(0.0, |_| Sample::default()).header;
        let mut file = RecordFile::create(&path, &header, Earlier::Kept).unwrap();
        let line = "x".repeat(MAX_HELD_BYTES / 8);
        (0..12).for_each(|_| file.write(&line));
        file.flush();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), earlier);
        file.replace();
        assert_eq!(file.dropped, 5, "the header and seven lines fit");
        file.write(&"after");
        file.finish().unwrap();
        let lines = std::fs::read_to_string(&path).unwrap();
        assert_eq!((lines.lines().count(), lines.lines().last()), (9, Some("\"after\"")));
    }
}
