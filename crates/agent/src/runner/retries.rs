//! Whether and when a transfer that failed is tried again.

use std::time::Duration;

use longhaul_core::failure::FailureKind;
use longhaul_core::queue_admission;
use longhaul_core::retry::Retry;

use super::execute::RunFailure;
use crate::database::{RunEnd, TransferRow};
use crate::transfer::{TransferKind, TransferState};

/// The maximum number of retries in a row because another run holds the file: about an hour.
const MAX_BUSY_RETRIES: u32 = 10;

/// The retries of a transfer after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunRetries {
    /// The failures in a row.
    pub(super) attempts: u32,
    /// The retries in a row because another run held the file.
    pub(super) busy_retries: u32,
    /// The time before the next run; `None` if there is none.
    pub(super) delay: Option<Duration>,
}

impl RunRetries {
    /// Returns the retries after a failure of a run; `before` has those before it.
    pub(super) fn after(failure: &RunFailure, before: &RunEnd, max_retries: u32, is_in_farm: bool) -> Self {
        let RunEnd { attempts, busy_retries, .. } = *before;
        // The run of an earlier lease, on a host that was stopped or cut off, may hold the file
        // until it finds that out.
        if failure.is_busy && is_in_farm {
            let delay = (busy_retries < MAX_BUSY_RETRIES).then(|| queue_admission::retry_delay(busy_retries));
            return Self { attempts, busy_retries: busy_retries.saturating_add(1), delay };
        }
        let may_retry = failure.retry != Retry::Never && attempts < max_retries;
        let delay = may_retry.then(|| queue_admission::retry_delay(attempts));
        Self { attempts: attempts.saturating_add(1), busy_retries: 0, delay }
    }
}

/// Returns the state after a failure: a link may have expired, a server may recover.
pub(super) fn state_after(
    kind: FailureKind,
    row: &TransferRow,
    has_worked: bool,
    may_retry: bool,
) -> TransferState {
    let of_link = row.transfer.kind == TransferKind::Get
        && row.transfer.ends.urls.first().is_some_and(|url| url.starts_with("http"));
    match kind {
        // A link that has never worked is wrong, not expired.
        FailureKind::Denied | FailureKind::NotFound if of_link && has_worked => TransferState::WaitingLink,
        _ if may_retry => TransferState::Scheduled,
        _ => TransferState::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_a_held_file_are_counted_apart_and_both_have_a_bound() {
        let held = RunFailure { is_busy: true, ..RunFailure::new(FailureKind::CannotCreate, "busy") };
        let reset = RunFailure::new(FailureKind::NoHost, "no route");
        for (failure, is_in_farm, before, after) in [
            (&reset, true, (1, 3), (2, 0, Some(15))),
            (&reset, true, (8, 0), (9, 0, None)),
            (&held, true, (7, 0), (7, 1, Some(5))),
            (&held, true, (0, 9), (0, 10, Some(600))),
            (&held, true, (0, 10), (0, 11, None)),
            (&held, false, (0, 0), (1, 0, None)),
        ] {
            let end = RunEnd { attempts: before.0, busy_retries: before.1, ..RunEnd::default() };
            let retries = RunRetries::after(failure, &end, 8, is_in_farm);
            let delay = after.2.map(Duration::from_secs);
            let expected = RunRetries { attempts: after.0, busy_retries: after.1, delay };
            assert_eq!(retries, expected, "{} after {before:?}", failure.message);
        }
    }
}
