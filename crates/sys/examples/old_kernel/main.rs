//! Runs a command as on a kernel without some system calls, for tests: `old_kernel [--without
//! CALL]... COMMAND [ARGUMENT...]`.
//!
//! By default without cachestat(2).

mod forget;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1).peekable();
    let mut calls = Vec::new();
    while words.next_if(|word| word == "--without").is_some() {
        calls.push(words.next().and_then(|name| number(name.to_str()?)).ok_or_else(unknown)?);
    }
    if calls.is_empty() {
        calls.push(forget::CACHESTAT);
    }
    let Some(program) = words.next() else { return Err(io::Error::other("name a command to run")) };
    calls.into_iter().try_for_each(forget::forget)?;
    Err(Command::new(program).args(words).exec())
}

fn number(name: &str) -> Option<u32> {
    Some(match name {
        "cachestat" => forget::CACHESTAT,
        "fallocate" => libc::SYS_fallocate as u32,
        "linkat" => libc::SYS_linkat as u32,
        "renameat2" => libc::SYS_renameat2 as u32,
        "statx" => libc::SYS_statx as u32,
        _ => return None,
    })
}

fn unknown() -> io::Error {
    io::Error::other("cachestat, fallocate, linkat, renameat2 and statx can be named")
}
