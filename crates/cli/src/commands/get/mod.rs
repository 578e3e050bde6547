//! `longhaul get URL...`.

mod stdout;
mod tree;
mod url_list;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, ValueHint};
use longhaul_core::admission::JobAdmission;
use longhaul_core::checksum::Checksum;
use longhaul_core::event::{JobObserver, JobTag};
use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::plan::LARGEST_WINDOW;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::proto::metalink::{MAX_DOCUMENT, Metalink, MetalinkFile};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::{Expected, Job, JobOptions};
use longhaul_engine::rate_limit::RateLimit;
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::sink::output::Output;
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::source::http::{ClientConfig, SafeUrl};
use longhaul_engine::source::is_known_scheme;
use longhaul_scope::record::schema::Side;
use url::Url;

use crate::batch::Batch;
use crate::streams_args::{MemoryArgs, StreamsArgs};
use crate::transfer_args::TransferArgs;
use crate::values::{AutoOr, app_buffer, parallel};
use crate::{exit, interrupt, record, say, url_text};

/// What to fetch, and how.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The files: URLs of http, https, ftp, ftps or gsiftp, or metalinks (.meta4), which name several sources of a file
    #[arg(required_unless_present = "input", value_name = "URL|FILE.meta4")]
    sources: Vec<Operand>,

    /// A file with further URLs, one a line, or - for stdin
    ///
    /// Blank lines and lines that begin with # are skipped. Indented lines below a URL hold its options: out=NAME, checksum=ALG:HEX.
    /// -o is a directory then.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input: Option<PathBuf>,

    /// Fetches a directory with all below it: from longhaul serve, nginx with autoindex, index pages of Apache, or by MLSD of FTP
    ///
    /// What it holds goes into the directory -o, by default one of its name. Files keep their time of modification; without -r they
    /// have the time at which they were fetched. A file whose size and time have not changed is not fetched again, unless --no-resume
    /// is given. Names that lead elsewhere are refused, and the rest goes on.
    #[arg(short, long, conflicts_with = "input")]
    recursive: bool,

    /// Where to put it: a file, a directory that exists or ends in / (several URLs need a directory), or - for stdout
    ///
    /// A file that stands there is replaced once the new one is complete. Without -o, and within
    /// a directory, the name comes from the server or the URL, and nothing is ever replaced. To stdout one file goes
    /// over one connection, in its order (| tar x): it cannot be resumed, and its digest is checked at its end, so look at the exit code.
    #[arg(short, long, value_name = "PATH|-", value_hint = ValueHint::AnyPath)]
    output: Option<PathBuf>,

    #[command(flatten)]
    streams: StreamsArgs,

    #[command(flatten)]
    memory: MemoryArgs,

    /// The socket's receive buffer, at most 1GiB; auto leaves it to the kernel wherever that can reach the path's need
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = recv_buffer)]
    recv_buffer: AutoOr<Bytes>,

    /// The application buffer of all files together: what the disk may lag behind; auto is 64MiB, and more where the disk is seen to stall
    #[arg(long, value_name = "auto|SIZE", default_value = "auto", value_parser = app_buffer)]
    app_buffer: AppBuffer,

    /// The size of its segments, a power of two; every stream gets at least two [default: 4MiB, less for many streams]
    #[arg(long, value_name = "SIZE", value_parser = segment)]
    segment: Option<Bytes>,

    /// How the file is written
    #[arg(long, value_enum, default_value = "auto")]
    writer: WriterArg,

    /// What the file's checksum must be: md5, sha1, sha256, sha512 or blake3, and the hex digits; or server, which has to state it
    ///
    /// With server, a GridFTP server computes the digest (CKSM), and an HTTP server sends it (Repr-Digest or Digest); one that states none
    /// fails.
    #[arg(long, value_name = "ALG:HEX|server")]
    checksum: Option<ChecksumArg>,

    /// Another URL of the file; may be given several times
    ///
    /// Each mirror gets streams of its own. Its file must have the same size and a strong validator, and a part of its bytes is
    /// compared with those that are there.
    #[arg(long, value_name = "URL", value_parser = url_text::parse)]
    mirror: Vec<Url>,

    /// How many files to fetch at once; small ones go more at once over kept connections
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parallel)]
    parallel: usize,

    /// Combines ranges although the server gives no strong validator: you vouch that the file does not change
    ///
    /// Without it such a file is fetched in one answer over one connection, and starts over after a break.
    #[arg(long)]
    assume_unchanged: bool,

    /// Encrypts the data of gsiftp:// too; a URL or server that sends data in clear is refused
    ///
    /// Without it gsiftp:// authenticates both ends and encrypts the commands, but not the data. https:// and ftps:// always encrypt.
    #[arg(long)]
    encrypt: bool,

    #[command(flatten)]
    transfer: TransferArgs,
}

/// `--checksum`.
#[derive(Debug, Clone)]
enum ChecksumArg {
    Given(Checksum),
    ByServer,
}

impl ChecksumArg {
    fn given(&self) -> Option<&Checksum> {
        match self {
            Self::Given(checksum) => Some(checksum),
            Self::ByServer => None,
        }
    }

    fn is_by_server(&self) -> bool {
        matches!(self, Self::ByServer)
    }
}

impl FromStr for ChecksumArg {
    type Err = <Checksum as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "server" { Ok(Self::ByServer) } else { text.parse().map(Self::Given) }
    }
}

/// What is named on the command line.
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

/// The most sources of one file: more connections than these have streams for.
const MOST_SOURCES: usize = 16;
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

/// Fetches every file; the exit code is that of the first that fails, or of an interruption.
pub(crate) fn run(args: &GetArgs) -> ExitCode {
    if args.recursive {
        return tree::run(args);
    }
    let cancel = Cancel::new();
    let setup = || {
        let files = files(args)?;
        let first = files.first().and_then(|file| file.urls.first());
        let options = options(args, files.len() > 1, first)?;
        let stdout = stdout::output(args, files.len())?;
        interrupt::listen(&cancel)?;
        Ok::<_, anyhow::Error>((files, options, stdout))
    };
    let (files, options, stdout) = match setup() {
        Ok(setup) => setup,
        Err(error) => {
            say::error(format_args!("{error:#}"));
            return exit::of_setup(&error).into();
        }
    };
    let what = files.first().map(RemoteFile::shown).unwrap_or_default();
    let session = match args.transfer.begin(Side::Get, &what, Some(files.len())) {
        Ok(session) => session,
        Err(code) => return code.into(),
    };
    let engine = Engine::new(args.app_buffer);
    let several = files.len() > 1 || args.input.is_some();
    let admission = JobAdmission::new(args.parallel);
    let batch = Batch { engine: &engine, session, cancel: &cancel, admission };
    batch.run(files.into_iter(), |session, job, file| {
        let tag = JobTag::new(job, &file.shown());
        let job = Job {
            urls: file.urls,
            output: stdout
                .clone()
                .unwrap_or_else(|| target(args.output.as_deref(), several, file.name.as_deref())),
            expected: file.expected,
            options: options.clone(),
        };
        let mut size = None;
        let get = |observer: JobObserver<'_>| {
            engine.run(&job, observer, &cancel).inspect(|outcome| size = Some(outcome.size))
        };
        session.run(&tag, get, exit::of_transfer).map(|()| size)
    })
}

/// A file to fetch: its URLs, and what is known of it beforehand.
struct RemoteFile {
    urls: Vec<Url>,
    expected: Expected,
    /// The name that the user chose for it in the output directory.
    name: Option<String>,
}

impl RemoteFile {
    fn shown(&self) -> String {
        self.urls.first().map(|url| SafeUrl::of(url).to_string()).unwrap_or_default()
    }
}

/// Collects what the operands and the list name: a URL is a file, a metalink one or more.
fn files(args: &GetArgs) -> anyhow::Result<Vec<RemoteFile>> {
    let mut files = Vec::new();
    let given = args.checksum.as_ref().and_then(ChecksumArg::given);
    let by_server = args.checksum.as_ref().is_some_and(ChecksumArg::is_by_server);
    for source in &args.sources {
        match source {
            Operand::Url(url) => {
                let urls = std::iter::once(url).chain(&args.mirror).cloned().collect();
                let expected = Expected { checksum: given.cloned(), by_server, ..Expected::default() };
                files.push(RemoteFile { urls, expected, name: None });
            }
            Operand::Metalink(path) => files.extend(of_metalink(path, args)?),
        }
    }
    if let Some(list) = &args.input {
        if given.is_some() || !args.mirror.is_empty() {
            bail!("--checksum and --mirror are for one file; in the list, write checksum= below its URL");
        }
        files.extend(url_list::read(list)?.into_iter().map(|line| RemoteFile {
            urls: vec![line.url],
            expected: Expected { checksum: line.checksum, by_server, ..Expected::default() },
            name: line.name,
        }));
    }
    if files.len() > 1 && (given.is_some() || !args.mirror.is_empty()) {
        bail!("--checksum and --mirror are for one file; fetch the others with commands of their own");
    }
    refuse_clear(args, files.iter().flat_map(|file| &file.urls))?;
    Ok(files)
}

/// Fails where one of `urls` has no encryption and the user asks for it.
fn refuse_clear<'u>(args: &GetArgs, mut urls: impl Iterator<Item = &'u Url>) -> anyhow::Result<()> {
    match urls.find(|url| args.encrypt && matches!(url.scheme(), "http" | "ftp")) {
        Some(url) => {
            bail!(
                "{} is sent in clear; --encrypt needs https://, ftps:// or gsiftp:// URLs",
                SafeUrl::of(url)
            )
        }
        None => Ok(()),
    }
}

/// Reads the files of a metalink; those without a usable URL are an error, for the rest would look complete.
fn of_metalink(path: &Path, args: &GetArgs) -> anyhow::Result<Vec<RemoteFile>> {
    let read = || -> anyhow::Result<Metalink> {
        let mut document = Vec::new();
        File::open(path)?.take(MAX_DOCUMENT.get() + 1).read_to_end(&mut document)?;
        Ok(Metalink::parse(&document)?)
    };
    let metalink = read().with_context(|| format!("cannot use the metalink {}", path.display()))?;
    let of_file = |file: MetalinkFile| {
        let usable = |url: Url| is_known_scheme(url.scheme()).then_some(url);
        let named = file.sources.iter().filter_map(|source| usable(source.url.parse().ok()?));
        let urls: Vec<_> = named.take(MOST_SOURCES).chain(args.mirror.iter().cloned()).collect();
        if urls.is_empty() {
            bail!("{} in the metalink {} has no URL that can be fetched", file.name, path.display());
        }
        let given = args.checksum.as_ref().and_then(ChecksumArg::given);
        let checksum = given.or_else(|| file.best_checksum()).cloned();
        let by_server = args.checksum.as_ref().is_some_and(ChecksumArg::is_by_server);
        let name = file.name.components().last().map(|name| name.to_string());
        let expected = Expected {
            name,
            size: file.size,
            checksum,
            by_server,
            pieces: file.pieces,
            ..Expected::default()
        };
        Ok(RemoteFile { urls, expected, name: None })
    };
    metalink.files.into_iter().map(of_file).collect()
}

/// Makes the options that all files share; `several` files may have them. Logins are for the server of the `first` URL only.
fn options(args: &GetArgs, several: bool, first: Option<&Url>) -> anyhow::Result<JobOptions> {
    let common = &args.transfer;
    first.into_iter().for_each(|url| common.warn_of_cleartext(url));
    Ok(JobOptions {
        streams: args.streams.wanted()?,
        memory: args.memory.memory(),
        segment: args.segment,
        sample: common.record.interval().map(SampleInterval::new),
        count_pages: common.json || common.shows_line(),
        verify: common.verify(),
        writer: args.writer.into(),
        pace: common.pace,
        // Where nothing else keeps to it.
        limit: match common.pace {
            Pace::Rate(rate) => Some(common.limit.map_or(rate, |limit| limit.min(rate))),
            Pace::Auto | Pace::Off => common.limit,
        }
        .map(RateLimit::new),
        resume: !common.no_resume,
        assume_unchanged: args.assume_unchanged,
        keep_time: args.recursive,
        retries: common.retries,
        stall: common.stall_timeout,
        client: client(args, several)?,
        logins_for: first.cloned(),
    })
}

/// Tells a file from a directory: what ends in / is one, and so is the place for several files; `name` is one in it.
fn target(output: Option<&Path>, several: bool, name: Option<&str>) -> Output {
    if let Some(name) = name {
        return Output::File(output.unwrap_or(Path::new(".")).join(name));
    }
    match output {
        None => Output::Directory(PathBuf::from(".")),
        Some(path) if several || path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
            Output::Directory(path.to_owned())
        }
        Some(path) => Output::File(path.to_owned()),
    }
}

fn client(args: &GetArgs, several: bool) -> anyhow::Result<ClientConfig> {
    if let Some(record) = args.transfer.record.file() {
        if several {
            bail!("--record is for one file; fetch the others with commands of their own");
        }
        if args.output.as_ref().is_some_and(|output| record::is_same(record, output)) {
            bail!("{} cannot be both the file and its record", record.display());
        }
        if record.file_name().is_some_and(|name| is_partial(name.as_encoded_bytes())) {
            bail!("{} is a name for partial files; give the record another", record.display());
        }
    }
    let urls = args.sources.iter().filter_map(Operand::url).chain(&args.mirror);
    urls.for_each(|url| args.transfer.warn_of_cleartext_login(url));
    let mut client = args.transfer.client()?;
    if args.transfer.pace != Pace::Auto && !client.headers.iter().any(|header| header.is(PACE_HEADER)) {
        client.headers.push(HeaderField::new(PACE_HEADER, &args.transfer.pace.header())?);
    }
    Ok(ClientConfig {
        recv_buffer: match args.recv_buffer {
            AutoOr::Auto => None,
            AutoOr::Value(size) => Some(size),
        },
        encrypt: args.encrypt,
        ..client
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_directory_only_where_that_is_said() {
        let is_directory = |output: Option<&str>, several| {
            matches!(target(output.map(Path::new), several, None), Output::Directory(_))
        };
        assert!(
            is_directory(None, false) && is_directory(Some("a/"), false) && is_directory(Some("a"), true)
        );
        assert!(!is_directory(Some("a"), false));
        assert!(
            matches!(target(Some(Path::new("a")), true, Some("b")), Output::File(path) if path == Path::new("a/b"))
        );
    }

    #[test]
    fn refuses_options_that_cannot_work() {
        assert!(segment("5000").is_err() && segment("2KiB").is_err() && segment("128MiB").is_err());
        assert!(recv_buffer("0").is_err() && recv_buffer("1025MiB").is_err());
        assert_eq!(recv_buffer("1GiB"), Ok(AutoOr::Value(Bytes::gib(1))));
    }
}
