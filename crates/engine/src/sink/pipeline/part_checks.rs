//! Checks that another program has not removed, replaced or truncated the partial file, before the
//! journal is written.

use std::io;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::Pipeline;
use crate::sink::output_error::OutputError;

impl Pipeline {
    /// Writes the journal with these committed ranges; does nothing without a journal.
    pub(super) fn store(&self, committed: &RangeSet) -> io::Result<()> {
        let Some(journal) = self.journal() else { return Ok(()) };
        self.check_part(false).map_err(io::Error::other)?;
        self.part.store(&journal, committed)
    }

    /// Checks the name and length of the partial file; with `at_end` it must not be longer than
    /// expected either.
    pub(super) fn check_part(&self, at_end: bool) -> Result<(), OutputError> {
        let checked = self.part.check_name().and_then(|()| {
            let least = self.least_length();
            self.part.check_length(least..=if at_end { least } else { u64::MAX })
        });
        checked.inspect_err(|error| self.discard_changed(error))
    }

    /// Checks that the partial file has at least the length `least`.
    pub(super) fn check_length(&self, least: u64) -> Result<(), OutputError> {
        let checked = self.part.check_length(least..=u64::MAX);
        checked.inspect_err(|error| self.discard_changed(error))
    }

    /// Returns the minimum length of the partial file; its space is reserved if the size is known.
    pub(super) fn least_length(&self) -> u64 {
        self.size.known.map_or_else(|| self.checkpoint.end_of_written(), Bytes::get)
    }

    /// Checks that bytes of a file of unknown size may be written: an endless one would fill the
    /// disk for all its users.
    pub(super) fn check_room(&self, range: ByteRange) -> Result<(), OutputError> {
        if self.size.known.is_some() {
            return Ok(());
        }
        if let Some(limit) = self.size.max.filter(|limit| range.end() > limit.get()) {
            let path = self.part.path().display();
            let message = format!("cannot write {path}: it is larger than the {limit} of --max-size");
            return Err(Failure::new(FailureKind::Data, message).into());
        }
        let Some((least, free)) = self.size.left_free.get().zip(self.part.free_space().ok()) else {
            return Ok(());
        };
        if free >= *least + range.len() {
            return Ok(());
        }
        let why = format!("{free} are left on its file system, and the server does not state its size");
        let source = io::Error::new(io::ErrorKind::StorageFull, why);
        Err(OutputError::Write { operation: "write", path: self.part.path().to_owned(), source })
    }

    /// Discards a partial file that another program has changed, because it is unknown which bytes
    /// are right.
    fn discard_changed(&self, error: &OutputError) {
        if matches!(error, OutputError::PartChanged { .. }) {
            self.part.discard();
        }
    }

    /// Returns the error of a journal operation; a change of the partial file takes precedence.
    pub(super) fn journal_failed(&self, operation: &'static str, source: io::Error) -> OutputError {
        let path = || self.part.journal_path();
        source.downcast().unwrap_or_else(|source| OutputError::Write { operation, path: path(), source })
    }
}
