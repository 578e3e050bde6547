//! Collects what the checks find.

use super::facts::Reading;
use super::finding::{Finding, Unread};

/// Findings and missing readings, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) findings: Vec<Finding>,
    pub(super) unread: Vec<Unread>,
}

impl Report {
    /// Judges a reading, or notes that it is missing.
    pub(super) fn judge<T>(
        &mut self,
        reading: &Reading<T>,
        name: &'static str,
        would_show: &'static str,
        judge: impl FnOnce(&T) -> Finding,
    ) {
        match reading {
            Ok(value) => self.findings.push(judge(value)),
            Err(reason) => self.unread.push(Unread { name, reason: reason.clone(), would_show }),
        }
    }
}
