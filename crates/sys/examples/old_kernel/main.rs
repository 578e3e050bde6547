//! Runs a command as on a kernel without a system call, for tests: `old_kernel [--without CALL] COMMAND [ARGUMENT...]`.
//!
//! It is without cachestat(2), or without what is named.

mod forget;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1).peekable();
    let call = match words.next_if(|word| word == "--without").and_then(|_| words.next()) {
        None => forget::CACHESTAT,
        Some(call) if call == "fallocate" => libc::SYS_fallocate as u32,
        Some(_) => return Err(io::Error::other("only fallocate can be named")),
    };
    let Some(program) = words.next() else { return Err(io::Error::other("name a command to run")) };
    forget::forget(call)?;
    Err(Command::new(program).args(words).exec())
}
