//! Ctrl-C: the first time ends cleanly and resumably, the second at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul_engine::cancel::Cancel;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Raises `cancel` on SIGINT, SIGTERM or SIGHUP; a second signal ends the process.
///
/// A signal that the process was started to ignore stays ignored: that is how `nohup` works.
pub(crate) fn listen(cancel: &Cancel) -> io::Result<()> {
    let heard = heard();
    let cancel = cancel.clone();
    let again = Arc::new(AtomicBool::new(false));
    // Before the iterator: a signal's actions run in this order, and the thread below may be faster than the next one.
    for signal in heard.iter().copied().filter(|signal| *signal != SIGHUP) {
        flag::register_conditional_shutdown(signal, 130, again.clone())?;
    }
    let mut signals = Signals::new(heard)?;
    outlive_size_limit()?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            cancel.cancel();
            again.store(true, Ordering::SeqCst);
        }
    })?;
    Ok(())
}

/// Makes a write past the limit on file sizes an error of that write, and not the end: any handler does.
pub(crate) fn outlive_size_limit() -> io::Result<()> {
    flag::register(Signal::XFSZ.as_raw(), Arc::default()).map(drop)
}

/// Returns those of the signals which ask for an end that the process was not started to ignore.
pub(crate) fn heard() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(&status, *signal)).collect()
}

/// Looks up a signal in the mask of ignored ones (proc(5), SigIgn: hexadecimal, the lowest bit is signal 1).
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
