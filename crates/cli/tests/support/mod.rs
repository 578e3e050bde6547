//! Helpers: the program as a child process, scripted and real servers, and content.

#![allow(dead_code, unused_imports, reason = "two test programs share it, each uses a part")]

mod agent_home;
mod content;
mod ftp_relay;
mod ftp_servers;
mod globus;
mod gsi;
pub(crate) mod held_path;
pub(crate) mod http;
mod kill_rounds;
pub(crate) mod lab;
mod memory;
mod other_clock;
mod partial;
mod postgres;
mod probe;
mod program;
mod rated_site;
mod real;
mod relay;
pub(crate) mod running;
pub(crate) mod scripted;
pub(crate) mod scripted_data;
mod server_process;
mod site;
mod slurm;
mod sniffer;
mod terminal;
pub(crate) mod tls;
mod writable;

use std::fs;
use std::ops::Range;
use std::path::Path;

pub(crate) use agent_home::{Home, join_farm, serve, text};
pub(crate) use content::{age, assert_equal, content, make_tree, many_files, partial_files, same, sha256};
pub(crate) use ftp_relay::{DataAction, FtpRelay};
pub(crate) use ftp_servers::{Proftpd, Vsftpd};
pub(crate) use globus::{Globus, LoggedTransfer};
pub(crate) use gsi::{Authority, GsiSite, Identity, openssl, with_credentials};
pub(crate) use http::{File, Gate, HttpRequest, Peer, Server, black_hole, reserved_port, response};
pub(crate) use kill_rounds::{Completions, RoundWork, chosen_kill_rounds, kill_rounds};
pub(crate) use memory::{MEMORY, remember};
pub(crate) use other_clock::other_clock;
pub(crate) use partial::{PartialFiles, has_committed, has_committed_in, partial, partial_with};
pub(crate) use postgres::Postgres;
pub(crate) use probe::{Iperf3, misses, probe, report};
pub(crate) use program::{
    Ended, Get, Get as Put, Running, get, in_own_mounts, longhaul, old_kernel, on_other_host, public_copy,
    put,
};
pub(crate) use rated_site::RatedSite;
pub(crate) use real::{Apache, Nginx, Serve, Site};
pub(crate) use relay::{Record, RelayAction, damaging, relay, relay_as, relay_pieces};
pub(crate) use scripted::{FtpCommand, Scripted, Session};
pub(crate) use scripted_data::{Data, Transfer, end};
pub(crate) use server_process::{
    FtpSite, ServerProcess, free_port, installed, is_root, needs_root, site_dir, skip, write_old,
    write_secret,
};
pub(crate) use site::{ListedTarget, listing, of_size, site, slow_site};
pub(crate) use slurm::{NODES, Slurm};
pub(crate) use sniffer::{in_own_network, packets_with};
pub(crate) use terminal::{program, terminal};
pub(crate) use tls::{certificates, server_config};
pub(crate) use writable::Writable;

/// Runs `test` for each case, all at the same time.
pub(crate) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|threads| cases.into_iter().for_each(|case| drop(threads.spawn(move || test(case)))));
}

/// Reads a range of seeds from the environment; a number is the end of one.
pub(crate) fn seeds(variable: &str) -> Option<Range<u64>> {
    let text = std::env::var(variable).ok()?;
    let (first, end) = text.split_once("..").unwrap_or(("0", &text));
    let parse = |text: &str| text.parse().unwrap_or_else(|_| panic!("{variable}: {text} is no number"));
    Some(parse(first)..parse(end))
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the jobs of a run with `--json` by the ends of their URLs: those whose file was
/// transferred, and those whose file was unchanged.
pub(crate) fn fetched_and_unchanged(ended: &Ended) -> (Vec<String>, Vec<String>) {
    let done = ended.json().into_iter().filter(|line| line["event"] == "done");
    let (mut fetched, mut unchanged) = (Vec::new(), Vec::new());
    for line in done {
        let name = line["url"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let was_there = line["resumed"] == line["bytes"] && line["streams"] == 0;
        if was_there { unchanged.push(name) } else { fetched.push(name) }
    }
    fetched.sort();
    unchanged.sort();
    (fetched, unchanged)
}
