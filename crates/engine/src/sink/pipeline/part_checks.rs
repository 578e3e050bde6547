//! Whether the partial file is as the pipeline has left it, without which its journal is not written: another program may have removed,
//! replaced or cut it.

use std::io;
use std::sync::atomic::Ordering;

use longhaul_core::ranges::RangeSet;
use longhaul_core::units::Bytes;

use super::Pipeline;
use crate::sink::output_error::OutputError;

impl Pipeline {
    /// Writes the journal with these committed ranges; does nothing where there is none.
    pub(super) fn store(&self, committed: &RangeSet) -> io::Result<()> {
        let Some(journal) = self.journal() else { return Ok(()) };
        self.check_part(false).map_err(io::Error::other)?;
        self.part.store(&journal, committed)
    }

    /// Checks that the partial file has its name and its length; `at_end` does not let it be longer.
    pub(super) fn check_part(&self, at_end: bool) -> Result<(), OutputError> {
        let checked = self.part.check_name().and_then(|()| {
            let least = self.least_length();
            self.part.check_length(least..=if at_end { least } else { u64::MAX })
        });
        checked.inspect_err(|error| self.discard_changed(error))
    }

    /// Checks that the partial file has at least this length.
    pub(super) fn check_length(&self, least: u64) -> Result<(), OutputError> {
        let checked = self.part.check_length(least..=u64::MAX);
        checked.inspect_err(|error| self.discard_changed(error))
    }

    /// Returns how long the partial file is at least: its space is reserved where the size is known.
    pub(super) fn least_length(&self) -> u64 {
        self.size.map_or_else(|| self.checkpoint.end_of_written(), Bytes::get)
    }

    /// Discards a partial file that another program has changed: which of its bytes are right is unknown.
    fn discard_changed(&self, error: &OutputError) {
        if matches!(error, OutputError::PartChanged { .. }) && !self.part_changed.swap(true, Ordering::SeqCst)
        {
            self.part.discard();
        }
    }

    /// Returns the error of a journal; what `store` has found wrong with the partial file comes first.
    pub(super) fn journal_failed(&self, operation: &'static str, source: io::Error) -> OutputError {
        let path = || self.part.journal_path();
        source.downcast().unwrap_or_else(|source| OutputError::Write { operation, path: path(), source })
    }
}
