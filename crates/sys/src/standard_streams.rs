//! Detects standard streams that were closed when the process started.
//!
//! Before `main`, Rust's runtime opens /dev/null in place of a closed standard stream, so that
//! writes are lost without an error.

use std::sync::atomic::{AtomicBool, Ordering};

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls the functions of this section before `main`; this one uses nothing
// that is initialised later.
#[used]
#[unsafe(link_section = ".init_array")]
static CHECK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    STDOUT_WAS_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Returns whether the process was started with a closed stdout, as by `>&-` of a shell.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}
