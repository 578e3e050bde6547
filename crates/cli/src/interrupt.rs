//! Signals: the first stops the command cleanly and resumably, a second one at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::failure::FailureKind;
use longhaul_engine::cancel::Cancel;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use crate::exit;

/// A SIGTERM so soon after the first signal is the same one: batch systems signal a process by
/// itself, by its group and by the script that has started it.
const REPEATED: Duration = Duration::from_secs(2);
/// The exit code after a second signal.
const STOPPED_AT_ONCE: i32 = exit::of(FailureKind::Interrupted) as i32;

/// Raises `cancel` on SIGINT, SIGTERM or SIGHUP; a later SIGINT ends the process, and so does a
/// SIGTERM that is not a repeated one.
///
/// A signal that was ignored at the process's start stays ignored (`nohup`).
pub(crate) fn listen(cancel: &Cancel) -> io::Result<()> {
    let unignored_signals = unignored_signals();
    let cancel = cancel.clone();
    let again = Arc::new(AtomicBool::new(false));
    // Registered before the iterator: actions of a signal run in this order, and the thread below
    // may be faster than the next one.
    if unignored_signals.contains(&SIGINT) {
        flag::register_conditional_shutdown(SIGINT, STOPPED_AT_ONCE, again.clone())?;
    }
    let mut signals = Signals::new(unignored_signals)?;
    outlive_size_limit()?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = None;
        for signal in signals.forever() {
            let first = *first.get_or_insert_with(Instant::now);
            if signal == SIGTERM && first.elapsed() > REPEATED {
                low_level::exit(STOPPED_AT_ONCE);
            }
            cancel.cancel();
            again.store(true, Ordering::SeqCst);
        }
    })?;
    Ok(())
}

/// Turns a write beyond the file size limit into an error: any handler of SIGXFSZ has this effect.
pub(crate) fn outlive_size_limit() -> io::Result<()> {
    flag::register(Signal::XFSZ.as_raw(), Arc::default()).map(drop)
}

/// Returns the stop signals that were not ignored at the process's start.
pub(crate) fn unignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(&status, *signal)).collect()
}

/// Looks up a signal in the mask of ignored signals (proc(5), SigIgn: hexadecimal, the lowest bit
/// is signal 1).
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_mask_of_ignored_signals() {
        let status = "SigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT) && !is_ignored("", SIGHUP));
    }
}
