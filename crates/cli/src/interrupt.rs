//! Ctrl-C: the first time ends cleanly and resumably, the second at once.

use std::io;
use std::thread;

use longhaul_engine::cancel::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Raises `cancel` on SIGINT, SIGTERM or SIGHUP; a second signal ends the process.
pub(crate) fn listen(cancel: &Cancel) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let cancel = cancel.clone();
    let again = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, again.clone())?;
    }
    thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            cancel.cancel();
            again.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    })?;
    Ok(())
}
