//! Runs a command as on a kernel without cachestat(2), for tests: `old_kernel COMMAND [ARGUMENT...]`.

mod forget;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else { return Err(io::Error::other("name a command to run")) };
    forget::forget_cachestat()?;
    Err(Command::new(program).args(words).exec())
}
