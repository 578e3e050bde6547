//! `longhaul get URL...`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use longhaul_core::checksum::Checksum;
use longhaul_core::event::Observer;
use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::plan::LARGEST_WINDOW;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::source::http::{ClientConfig, SafeUrl};
use longhaul_engine::transfer::{self, GetRequest, Output, Streams};
use longhaul_scope::record::schema::Side;
use longhaul_sys::sockopt;
use url::Url;

use crate::streams_args::StreamsArgs;
use crate::transfer_args::TransferArgs;
use crate::values::{AutoOr, app_buffer};
use crate::{exit, interrupt, record, say};

/// What to fetch, and how.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The files: http:// or https:// URLs
    #[arg(required = true, value_name = "URL")]
    urls: Vec<Url>,

    /// Where to put it: a file, or a directory that exists or ends in / (several URLs need a directory)
    ///
    /// A file that stands there is replaced once the new one is complete. Without -o, and within
    /// a directory, the name comes from the server or the URL, and nothing is ever replaced.
    #[arg(short, long, value_name = "PATH", value_parser = PathBufValueParser::new().try_map(output))]
    output: Option<PathBuf>,

    #[command(flatten)]
    streams: StreamsArgs,

    /// The socket's receive buffer, at most 1GiB; auto leaves it to the kernel wherever that can reach the path's need
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = recv_buffer)]
    recv_buffer: AutoOr<Bytes>,

    /// The application buffer of all files together: what the disk may lag behind; auto is 64MiB, and more where the disk is seen to stall
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = app_buffer)]
    app_buffer: AppBuffer,

    /// The size of its segments, a power of two; every stream gets at least two [default: 4MiB, less for many streams]
    #[arg(long, value_name = "SIZE", value_parser = segment)]
    segment: Option<Bytes>,

    /// Pace a server that cannot pace itself, through one stream's receive window (needs CAP_NET_ADMIN; no https)
    ///
    /// It spares a thin path's short queues the losses of slow start, and may take longer than several streams.
    #[arg(long)]
    pace_window: bool,

    /// How the file is written
    #[arg(long, value_enum, default_value = "auto")]
    writer: WriterArg,

    /// What the file's checksum must be: md5, sha1, sha256, sha512 or blake3, and the hex digits
    #[arg(long, value_name = "ALG:HEX")]
    checksum: Option<Checksum>,

    #[command(flatten)]
    transfer: TransferArgs,
}

/// `--writer`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum WriterArg {
    /// Direct where the file system can, else buffered
    Auto,
    /// O_DIRECT, past the page cache
    Direct,
    /// A shared mapping
    Mmap,
    /// pwrite through the page cache
    Buffered,
}

impl From<WriterArg> for WriterChoice {
    fn from(arg: WriterArg) -> Self {
        match arg {
            WriterArg::Auto => Self::Auto,
            WriterArg::Direct => Self::Direct,
            WriterArg::Mmap => Self::Mmap,
            WriterArg::Buffered => Self::Buffered,
        }
    }
}

fn output(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == "-" {
        return Err(
            "longhaul writes files that can be resumed, not stdout; for a file of that name write ./-",
        );
    }
    Ok(path)
}

fn recv_buffer(text: &str) -> Result<AutoOr<Bytes>, String> {
    if text == "auto" {
        return Ok(AutoOr::Auto);
    }
    match text.parse::<Bytes>() {
        Ok(size) if size > LARGEST_WINDOW => {
            Err(format!("TCP announces no window of more than {LARGEST_WINDOW}"))
        }
        Ok(size) if size > Bytes::ZERO => Ok(AutoOr::Value(size)),
        Ok(_) => Err("a receive buffer of nothing receives nothing".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn segment(text: &str) -> Result<Bytes, String> {
    const FROM: Bytes = Bytes::kib(4);
    const TO: Bytes = Bytes::mib(64);
    match text.parse::<Bytes>() {
        Ok(size) if size.get().is_power_of_two() && (FROM..=TO).contains(&size) => Ok(size),
        Ok(_) => Err(format!("write a power of two from {FROM} to {TO}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Fetches every file in turn; the exit code is that of the first that fails.
pub(crate) fn run(args: &GetArgs) -> ExitCode {
    let cancel = Cancel::new();
    let setup = || {
        let streams = args.streams.wanted()?;
        let client = client(args, streams)?;
        interrupt::listen(&cancel)?;
        Ok::<_, anyhow::Error>((streams, client))
    };
    let (streams, client) = match setup() {
        Ok(setup) => setup,
        Err(error) => {
            say::error(format_args!("{error:#}"));
            return exit::of_setup(&error).into();
        }
    };
    let mut first_failure = None;
    for url in &args.urls {
        if let Err(code) = fetch(args, url, streams, &client, &cancel) {
            first_failure.get_or_insert(code);
        }
        if cancel.is_cancelled() {
            break;
        }
    }
    first_failure.map_or(ExitCode::SUCCESS, ExitCode::from)
}

fn fetch(
    args: &GetArgs,
    url: &Url,
    streams: Streams,
    client: &ClientConfig,
    cancel: &Cancel,
) -> Result<(), exit::Code> {
    let common = &args.transfer;
    let request = GetRequest {
        url: url.clone(),
        target: target(args.output.as_deref(), args.urls.len() > 1),
        streams,
        memory: args.streams.memory(),
        app_buffer: args.app_buffer,
        segment: args.segment,
        sample: common.record.interval(),
        count_pages: common.json || common.shows_line(),
        writer: args.writer.into(),
        checksum: args.checksum.clone(),
        pace: common.pace,
        pace_window: args.pace_window,
        // Where nobody else keeps to it.
        limit: match common.pace {
            Pace::Rate(rate) => Some(common.limit.map_or(rate, |limit| limit.min(rate))),
            Pace::Auto | Pace::Off => common.limit,
        },
        resume: !common.no_resume,
        retries: common.retries,
        stall: common.stall_timeout,
        client: client.clone(),
    };
    let get = |observer: &dyn Observer| transfer::get(&request, observer, cancel);
    common.observe(Side::Get, &SafeUrl::of(url).to_string(), get, exit::of_transfer)
}

/// Tells a file from a directory: what ends in / is one, and so is the place for several files.
fn target(output: Option<&Path>, several: bool) -> Output {
    match output {
        None => Output::Directory(PathBuf::from(".")),
        Some(path) if several || path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Output::Directory(path.to_owned())
        }
        Some(path) => Output::File(path.to_owned()),
    }
}

fn client(args: &GetArgs, streams: Streams) -> anyhow::Result<ClientConfig> {
    if args.pace_window && args.transfer.pace == Pace::Off {
        bail!("--pace-window paces, and --pace off does not: leave one of them out");
    }
    let https = args.urls.iter().any(|url| url.scheme() == "https");
    let one = matches!(streams, Streams::Auto | Streams::Fixed(1));
    if args.pace_window && (https || !one || args.recv_buffer != AutoOr::Auto) {
        bail!(
            "--pace-window is for one stream over plain http whose receive buffer is auto: leave it or the other out"
        );
    }
    if args.pace_window && !sockopt::may_force_recv_buffer() {
        bail!("--pace-window needs CAP_NET_ADMIN to set the receive buffer: run as root, or leave it out");
    }
    if args.checksum.is_some() && args.urls.len() > 1 {
        bail!("--checksum is for one file; fetch the others with commands of their own");
    }
    if let Some(record) = args.transfer.record.file() {
        if args.urls.len() > 1 {
            bail!("--record is for one file; fetch the others with commands of their own");
        }
        if args.output.as_ref().is_some_and(|output| record::is_same(record, output)) {
            bail!("{} cannot be both the file and its record", record.display());
        }
        if record.file_name().is_some_and(|name| is_partial(name.as_encoded_bytes())) {
            bail!("{} is a name for partial files; give the record another", record.display());
        }
    }
    args.urls.iter().for_each(|url| args.transfer.warn_of_open_token(url));
    let mut client = args.transfer.client()?;
    if args.transfer.pace != Pace::Auto && !client.headers.iter().any(|header| header.is(PACE_HEADER)) {
        client.headers.push(HeaderField::new(PACE_HEADER, &args.transfer.pace.header())?);
    }
    Ok(ClientConfig {
        recv_buffer: match args.recv_buffer {
            AutoOr::Auto => None,
            AutoOr::Value(size) => Some(size),
        },
        ..client
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_directory_only_where_that_is_said() {
        assert_eq!(target(None, false), Output::Directory(".".into()));
        assert_eq!(target(Some(Path::new("a/")), false), Output::Directory("a/".into()));
        assert_eq!(target(Some(Path::new("a")), true), Output::Directory("a".into()));
        assert_eq!(target(Some(Path::new("a")), false), Output::File("a".into()));
    }

    #[test]
    fn refuses_options_that_cannot_work() {
        assert!(segment("5000").is_err() && segment("2KiB").is_err() && segment("128MiB").is_err());
        assert!(recv_buffer("0").is_err() && recv_buffer("1025MiB").is_err());
        assert_eq!(recv_buffer("1GiB"), Ok(AutoOr::Value(Bytes::gib(1))));
    }
}
