//! `longhaul get URL...`.

mod files;
mod if_newer;
mod to_stdout;
pub(crate) mod tree;
pub(crate) mod url_list;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::bail;
use clap::{Args, ValueHint};
use longhaul_core::buffer_plan::LARGEST_WINDOW;
use longhaul_core::checksum::Checksum;
use longhaul_core::event::{Done, JobObserver, JobTag};
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::{ExistingFilePolicy, Job, JobOptions, TransferError};
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::source::http::ClientConfig;
use longhaul_scope::record::schema::Side;
use url::Url;

use crate::many_files::Batch;
use crate::session::CommandSession;
use crate::transfer_args::TransferArgs;
use crate::values::{Choice, RESEARCH, app_buffer, choice, parallel};
use crate::{exit, interrupt, record, url_text};

/// Operands and options of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The files: URLs of http, https, ftp, ftps or gsiftp, or metalinks (.meta4), which name
    /// several sources of a file
    #[arg(required_unless_present = "input", value_name = "URL|FILE.meta4")]
    sources: Vec<Operand>,

    #[command(flatten)]
    files: FileArgs,

    /// Fetch this many large files at once; smaller ones go more at once over kept connections
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parallel, help_heading = "Speed")]
    parallel: usize,

    #[command(flatten)]
    buffers: BufferArgs,

    #[command(flatten)]
    integrity: IntegrityArgs,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

/// Options of files and their place.
#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
struct FileArgs {
    /// Read further URLs from a file, one a line, or from stdin (-)
    ///
    /// The format is aria2's: tabs separate the mirrors of a file, and indented lines below them
    /// hold its options: out=PATH, dir=DIR, size=SIZE, checksum=ALG=HEX, header=K: V, referer=URL,
    /// user-agent=NAME. An option that is not known is named in a warning. Blank lines and lines
    /// that begin with # are skipped. -o is a directory then.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input: Option<PathBuf>,

    /// Fetch a directory with all below it
    ///
    /// It is listed by longhaul serve, index pages of web servers, nginx or Caddy in JSON, or MLSD
    /// or LIST of FTP. What it holds goes into the directory -o, by default one of its name. Files
    /// keep their time of modification; without -r they have the time at which they were fetched. A
    /// file whose size and time have not changed is not fetched again, unless --no-resume is given.
    /// Names outside the directory are refused; other files are fetched.
    #[arg(short, long, conflicts_with = "input")]
    recursive: bool,

    /// Write to a file, into a directory that exists or ends in / (several URLs need one), or to
    /// stdout (-)
    ///
    /// A missing directory is made. An existing file is replaced once the new one is complete.
    /// Without -o, and within a directory, the server or the URL sets the name, and nothing is ever
    /// replaced; a file that is there complete is not fetched again. A file is sent to stdout over
    /// one connection, in order (| tar x): it cannot be resumed, and its digest is checked at its
    /// end, so look at the exit code.
    #[arg(short, long, value_name = "PATH|-", value_hint = ValueHint::AnyPath)]
    output: Option<PathBuf>,

    /// Refuse files larger than this, and end one of unknown size there
    ///
    /// Whatever the limit, a file of unknown size ends before the file system is full.
    #[arg(long, value_name = "SIZE", value_parser = Bytes::with_unit)]
    max_size: Option<Bytes>,

    /// Fetch only what is newer than the file that is here, as wget -N and curl -z
    ///
    /// The file gets the time that it has on the server (Last-Modified, or MDTM of FTP), and the
    /// next run fetches it only where that has become later. Without a time from the server the
    /// ETag is stored in the attribute user.longhaul.etag, and compared. Its name is that of -o,
    /// out= or the URL, and the newer file takes its place.
    #[arg(short = 'N', long, conflicts_with = "recursive")]
    if_newer: bool,

    /// Fetch from another URL of the file too; may be given several times
    ///
    /// Each mirror gets streams of its own. Its file must have the same size and a strong
    /// validator, and a part of its bytes is compared with those that are there.
    #[arg(long, value_name = "URL", value_parser = url_text::parse)]
    mirror: Vec<Url>,
}

/// Buffers between the network and the disk.
#[derive(Debug, Args)]
#[command(next_help_heading = RESEARCH)]
struct BufferArgs {
    /// Set the socket's receive buffer, at most 1GiB; auto leaves it to the kernel wherever that
    /// can reach the path's need
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = recv_buffer, hide_short_help = true)]
    recv_buffer: RecvBuffer,

    /// Set the application buffer of all files together: what the disk may lag behind; auto is
    /// 64MiB, and more where the disk stalls
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = app_buffer, hide_short_help = true)]
    app_buffer: AppBuffer,

    /// Set the size of the application buffer's segments, a power of two; every stream gets at
    /// least two [default: 4MiB, less for many streams]
    #[arg(long, value_name = "SIZE", value_parser = segment, hide_short_help = true)]
    segment: Option<Bytes>,

    /// Choose how the file is written
    #[arg(long, default_value = "auto", value_parser = choice(&WRITERS), hide_short_help = true)]
    writer: WriterChoice,
}

/// Options of checksums and identity.
#[derive(Debug, Args)]
#[command(next_help_heading = "Integrity")]
struct IntegrityArgs {
    /// Demand this checksum of the file: md5, sha1, sha224 to sha512, blake2b, blake2b-128 to
    /// blake2b-384 or blake3, and the hex digits; or server, which has to state it
    ///
    /// With server, a GridFTP server computes the digest (CKSM), and an HTTP server sends it
    /// (Repr-Digest or Digest); one that states none fails.
    #[arg(long, value_name = "ALG:HEX|server")]
    checksum: Option<ChecksumArg>,

    /// Demand the checksums of a file, as SHA256SUMS: by the names of its lines; a file without a
    /// line is not fetched
    ///
    /// The lines are those of sha256sum and its kin, of b2sum and b3sum, or of BSD: SHA256 (NAME) =
    /// HEX. A line without an algorithm is right by any of its length, as SHA-256, BLAKE3 or
    /// BLAKE2b-256 (b2sum -l 256). A checksum of -i or of a metalink precedes it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["checksum", "recursive"])]
    checksum_file: Option<PathBuf>,

    /// Combine ranges although the server gives no strong validator: you vouch that the file does
    /// not change
    ///
    /// Without it such a file is fetched in one answer over one connection, and starts over after a
    /// break.
    #[arg(long)]
    assume_unchanged: bool,
}

/// `--checksum`.
#[derive(Debug, Clone)]
enum ChecksumArg {
    Given(Checksum),
    ByServer,
}

impl IntegrityArgs {
    /// Returns the given checksum.
    fn given(&self) -> Option<&Checksum> {
        match &self.checksum {
            Some(ChecksumArg::Given(checksum)) => Some(checksum),
            Some(ChecksumArg::ByServer) | None => None,
        }
    }

    /// Returns whether the server must state a checksum.
    fn is_by_server(&self) -> bool {
        matches!(self.checksum, Some(ChecksumArg::ByServer))
    }
}

impl FromStr for ChecksumArg {
    type Err = <Checksum as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "server" { Ok(Self::ByServer) } else { text.parse().map(Self::Given) }
    }
}

/// An operand of the command line.
#[derive(Debug, Clone)]
enum Operand {
    Url(Url),
    Metalink(PathBuf),
}

impl Operand {
    fn url(&self) -> Option<&Url> {
        match self {
            Self::Url(url) => Some(url),
            Self::Metalink(_) => None,
        }
    }
}

impl FromStr for Operand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") && [".meta4", ".metalink"].iter().any(|suffix| text.ends_with(suffix)) {
            return Ok(Self::Metalink(text.into()));
        }
        url_text::parse(text).map(Self::Url)
    }
}

/// The values of `--writer`.
const WRITERS: [Choice<WriterChoice>; 4] = [
    ("auto", WriterChoice::Auto, "Direct where the file system can, else buffered"),
    ("direct", WriterChoice::Direct, "O_DIRECT, past the page cache"),
    ("mmap", WriterChoice::Mmap, "A shared mapping"),
    ("buffered", WriterChoice::Buffered, "pwrite through the page cache"),
];

/// `--recv-buffer`; `None` leaves it to the kernel. An alias: clap takes an `Option` for an option
/// without a value.
type RecvBuffer = Option<Bytes>;

fn recv_buffer(text: &str) -> Result<RecvBuffer, String> {
    if text == "auto" {
        return Ok(None);
    }
    match Bytes::with_unit(text)? {
        size if size > LARGEST_WINDOW => {
            Err(format!("TCP announces no window of more than {LARGEST_WINDOW}"))
        }
        size if size > Bytes::ZERO => Ok(Some(size)),
        _ => Err("a receive buffer of nothing receives nothing".into()),
    }
}

fn segment(text: &str) -> Result<Bytes, String> {
    const FROM: Bytes = Bytes::kib(4);
    const TO: Bytes = Bytes::mib(64);
    match Bytes::with_unit(text)? {
        size if size.get().is_power_of_two() && (FROM..=TO).contains(&size) => Ok(size),
        _ => Err(format!("write a power of two from {FROM} to {TO}")),
    }
}

/// Fetches every file; returns the exit code of the first failure, or of an interruption.
pub(crate) fn run(args: &GetArgs) -> anyhow::Result<ExitCode> {
    if args.files.recursive {
        return tree::run(args);
    }
    let cancel = args.transfer.client.connect.cancel();
    let setup = || {
        let files = files::collect(args, &cancel)?;
        let first = files.first().and_then(|file| file.urls.first());
        let options = options(args, first, &cancel)?;
        let stdout = to_stdout::output(args, files.len())?;
        let several = files.len() > 1 || args.files.input.is_some();
        files::make_directories(args, &files, several)?;
        if stdout.is_none() {
            files::refuse_repeated(args, &files, several)?;
        }
        interrupt::listen(&cancel)?;
        Ok::<_, anyhow::Error>((files, options, stdout, several))
    };
    let (files, options, stdout, several) = setup().map_err(|error| exit::not_set_up(&error, &cancel))?;
    let what = files.first().map(files::RemoteFile::shown).unwrap_or_default();
    let lines = args.transfer.shows_line() && !to_stdout::is_terminal(args);
    let session = CommandSession::begin(&args.transfer, Side::Get, &what, Some(files.len()), lines, &cancel)?;
    let engine = Engine::new(args.buffers.app_buffer);
    let admission = JobAdmission::new(args.parallel);
    let batch = Batch { engine: &engine, session, cancel: &cancel, admission };
    let fetched = batch.run(
        files.into_iter(),
        |file| file.expected.size,
        |session, job, file| {
            let tag = JobTag::new(job, &file.shown());
            let mut job = Job {
                options: file.options(&options),
                output: stdout.clone().unwrap_or_else(|| file.target(args.files.output.as_deref(), several)),
                urls: file.urls,
                expected: file.expected,
            };
            let there = if args.files.if_newer { if_newer::apply(&mut job) } else { None };
            let get = |observer: JobObserver<'_>| match (engine.run(&job, observer, &cancel), there) {
                (Err(TransferError::NotModified), Some(there)) => {
                    session.say_unchanged(&there, "not newer on the server");
                    Ok(there)
                }
                (Err(TransferError::AlreadyThere { path, size }), _) => {
                    let there = Done::unchanged(path, size);
                    session.say_unchanged(&there, "already there");
                    Ok(there)
                }
                (outcome, _) => outcome,
            };
            session.run(&tag, get, TransferError::kind)
        },
    );
    Ok(exit::of_end(fetched))
}

/// Creates the options common to all files. Logins apply to the server of the `first` URL only.
fn options(args: &GetArgs, first: Option<&Url>, cancel: &Cancel) -> anyhow::Result<JobOptions> {
    let common = &args.transfer;
    first.map_or(Ok(()), |url| common.client.check_cleartext(url))?;
    // Before a password is asked for.
    common.streams.requested()?;
    Ok(JobOptions {
        transfer: common.transfer_options(common.receiving_limit(), client(args, cancel)?)?,
        segment: args.buffers.segment,
        count_pages: common.json || common.shows_line(),
        verify: common.verify,
        writer: args.buffers.writer,
        max_size: args.files.max_size,
        assume_unchanged: args.integrity.assume_unchanged,
        existing: ExistingFilePolicy {
            // Repeating the command succeeds, as with aria2 -c and wget -c.
            accept_complete: !common.no_resume,
            claims: Some(Arc::default()),
            ..ExistingFilePolicy::default()
        },
        keep_time: args.files.recursive || args.files.if_newer,
        logins_for: first.cloned(),
    })
}

fn client(args: &GetArgs, cancel: &Cancel) -> anyhow::Result<ClientConfig> {
    if let Some(record) = args.transfer.record.file() {
        if args.files.output.as_ref().is_some_and(|output| record::is_same(record, output)) {
            bail!("{} cannot be both the file and its record", record.display());
        }
        if record.file_name().is_some_and(|name| is_partial(name.as_encoded_bytes())) {
            bail!("{} is a name for partial files; give the record another", record.display());
        }
    }
    let urls = args.sources.iter().filter_map(Operand::url).chain(&args.files.mirror);
    urls.clone().try_for_each(|url| args.transfer.client.logins.check_cleartext_login(url))?;
    let client = args.transfer.receiving_client(cancel)?;
    TransferArgs::warn_of_unused_proxy(&client, urls);
    Ok(ClientConfig { recv_buffer: args.buffers.recv_buffer, ..client })
}
