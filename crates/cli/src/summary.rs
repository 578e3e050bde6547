//! The summary of a transfer in either direction.

use std::path::PathBuf;

use longhaul_core::advice::{Finding, Shares};
use longhaul_core::event::Done;
use longhaul_core::units::Bytes;
use longhaul_farm::work_run::CompleteFile;

use crate::say;

/// The result of a complete transfer.
pub(crate) trait Complete {
    /// Returns the last event of the job.
    fn done(&self) -> Done;

    /// Returns what limited the transfer, unless nothing was moved.
    fn finding(&self) -> Option<&Finding> {
        None
    }

    /// Returns whether the result is printed as a line.
    fn is_shown(&self) -> bool {
        true
    }

    /// Returns a text to print in place of the result's line.
    fn note(&self) -> Option<String> {
        None
    }
}

/// A file already present with the expected size and time.
pub(crate) struct Unchanged {
    pub(crate) path: PathBuf,
    pub(crate) size: Bytes,
}

impl Complete for Unchanged {
    fn done(&self) -> Done {
        Done {
            path: self.path.clone(),
            bytes: self.size,
            resumed: self.size,
            unchanged: true,
            ..Done::default()
        }
    }

    fn is_shown(&self) -> bool {
        false
    }
}

/// Prints a result on stderr, without its advice; `name` is the destination. Control characters are removed.
pub(crate) fn say(done: &Done, name: &str) {
    let name = name.replace(char::is_control, "?");
    let were_there =
        if done.resumed > Bytes::ZERO { format!(" ({} were there)", done.resumed) } else { String::new() };
    say::line(format_args!(
        "{name}: {}{were_there} in {:.1} s, {}, limited by {}{}",
        done.bytes,
        done.time.as_secs_f64(),
        done.goodput,
        done.finding.limit,
        limits(&done.finding.shares)
    ));
}

/// Prints the advice below a result.
pub(crate) fn say_advice(advice: &[String]) {
    advice.iter().for_each(|advice| say::line(format_args!("  {advice}")));
}

/// Formats the shares of the limits, the largest first; omits those below 1 %.
fn limits(shares: &Shares) -> String {
    let named = shares.ranked().into_iter().filter(|(_, share)| *share >= 0.01);
    let named: Vec<_> = named.map(|(limit, share)| format!("{limit} {:.0} %", share * 100.0)).collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}

impl Complete for Done {
    fn done(&self) -> Done {
        self.clone()
    }

    fn finding(&self) -> Option<&Finding> {
        Some(&self.finding)
    }
}

impl Complete for CompleteFile {
    fn done(&self) -> Done {
        self.done.clone()
    }

    fn finding(&self) -> Option<&Finding> {
        self.finding.as_ref()
    }

    fn is_shown(&self) -> bool {
        !self.done.unchanged
    }
}
