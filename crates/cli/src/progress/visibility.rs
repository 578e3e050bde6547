//! When progress is visible.

use crate::stderr;
use crate::transfer_args::TransferArgs;

impl TransferArgs {
    /// Returns whether progress lines are drawn: stderr is a terminal, and neither `--quiet` nor
    /// `--json` is given.
    pub(crate) fn shows_line(&self) -> bool {
        !self.quiet && !self.json && stderr::is_capable()
    }
}
