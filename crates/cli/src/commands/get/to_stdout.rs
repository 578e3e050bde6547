//! `longhaul get -o -`: writes a file to stdout in order.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use longhaul_engine::job::Streams;
use longhaul_engine::sink::output::Output;
use longhaul_engine::verify::Verify;

use super::GetArgs;
use crate::stdout;

/// Returns stdout as the output for `-o -`.
///
/// # Errors
/// Options that a stream does not support.
pub(super) fn output(args: &GetArgs, files: usize) -> anyhow::Result<Option<Output>> {
    if !is_requested(args) {
        return Ok(None);
    }
    if files != 1 || args.files.input.is_some() || args.files.recursive {
        bail!("-o - takes one file: two on stdout could not be separated");
    }
    if args.files.if_newer {
        bail!("--if-newer compares with a file; stdout is none");
    }
    if args.transfer.json {
        bail!("--json and -o - both need stdout: write the file elsewhere");
    }
    if args.transfer.verify == Verify::Disk {
        bail!("--verify disk reads a file back; what has gone to stdout cannot be read again");
    }
    if !matches!(args.transfer.streams.requested()?, Streams::Auto | Streams::Fixed(1)) {
        bail!(
            "-o - writes a file to stdout in its order, over one connection: leave out --streams and --tuner"
        );
    }
    let stdout = stdout::open().context("cannot write to standard output")?;
    let stdout = stdout.as_fd().try_clone_to_owned().context("cannot use stdout")?;
    Ok(Some(Output::Stream { file: Arc::new(File::from(stdout)), name: "stdout".to_owned() }))
}

/// Returns whether the output is stdout; a file named `-` is `./-`.
pub(super) fn is_requested(args: &GetArgs) -> bool {
    args.files.output.as_deref() == Some(Path::new("-"))
}

/// Returns whether the file is written to a terminal, where progress would mix with its bytes.
pub(super) fn is_terminal(args: &GetArgs) -> bool {
    is_requested(args) && io::stdout().is_terminal()
}
