//! `longhaul put PATH... URL`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use longhaul_core::event::{Done, JobId, JobTag};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::send::ReaderChoice;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::upload::{self, PutRequest, UploadError};
use longhaul_scope::record::schema::Side;
use url::Url;

use crate::many_files::{Batch, FileResult, not_begun};
use crate::session::CommandSession;
use crate::transfer_args::TransferArgs;
use crate::values::{Choice, RESEARCH, choice, parallel};
use crate::{exit, interrupt, record, say, url_text};

/// Operands and options of `put`.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The files, and last where to: the file's http://, https://, ftp://, ftps:// or gsiftp://
    /// URL, or one ending in / that takes it under its own name (several files need that)
    ///
    /// `longhaul serve --writable` resumes what was interrupted, and compares digests before a file
    /// gets its name. Any other server that takes PUT gets each file in one piece, but for Apache's
    /// mod_dav_fs, which gets ranges of a temporary file where several streams pay.
    // A single list of operands, so that options may stand between them; clap counts each
    // contiguous group, which may be a single one.
    #[arg(required = true, num_args = 1.., value_names = ["PATH", "URL"], value_hint = ValueHint::FilePath)]
    operands: Vec<PathBuf>,

    /// Send a directory with all below it into the directory at the URL, which is made where it is
    /// missing
    ///
    /// A file that the server has with the same size and time is not sent again, unless --no-resume
    /// is given. Servers but `longhaul serve` give files the time of their upload: there a file
    /// must not be older than the one here. Symbolic links are left out.
    #[arg(short, long, help_heading = "Files")]
    recursive: bool,

    /// Send this many large files at once; smaller ones go more at once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parallel, help_heading = "Speed")]
    parallel: usize,

    /// Use this congestion control, as cubic or bbr, instead of the kernel's default
    #[arg(long, value_name = "NAME", help_heading = RESEARCH, hide_short_help = true)]
    congestion: Option<String>,

    /// Choose how the files are read
    #[arg(long, default_value = "auto", value_parser = choice(&READERS), help_heading = RESEARCH, hide_short_help = true)]
    reader: ReaderChoice,

    /// Do not have the server compare digests before the file gets its name
    #[arg(long, conflicts_with = "verify", help_heading = "Integrity")]
    no_verify: bool,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
}

/// The values of `--reader`.
const READERS: [Choice<ReaderChoice>; 3] = [
    (
        "auto",
        ReaderChoice::Auto,
        "sendfile where the page cache has most of the file or several streams send, else direct where the file system can",
    ),
    ("sendfile", ReaderChoice::Sendfile, "From the page cache, without a copy"),
    ("direct", ReaderChoice::Direct, "O_DIRECT, past the page cache"),
];

impl PutArgs {
    /// Returns the files.
    fn paths(&self) -> &[PathBuf] {
        self.operands.split_last().map_or(&[], |(_, paths)| paths)
    }

    /// Parses the last operand, the destination URL.
    fn url(&self) -> anyhow::Result<Url> {
        let last = self.operands.last().map(|last| last.to_string_lossy()).unwrap_or_default();
        url_text::parse(&last)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("the last operand, '{last}', must be the URL to put to"))
    }
}

/// Maximum of concurrent small files: `longhaul serve` accepts 16 uploads.
const MAX_SMALL_FILES: usize = 16;

/// Sends every file; returns the exit code of the first failure, or of an interruption.
pub(crate) fn run(args: &PutArgs) -> anyhow::Result<ExitCode> {
    let cancel = args.transfer.client.connect.cancel();
    let setup = || {
        let url = args.url()?;
        check(args, &url)?;
        let request = request(args, &url, &cancel)?;
        interrupt::listen(&cancel)?;
        Ok::<_, anyhow::Error>((url, request))
    };
    let (url, request) = setup().map_err(|error| exit::not_set_up(&error, &cancel))?;
    let engine = Engine::new(AppBuffer::Auto);
    let request = PutRequest { sessions: engine.ftp_sessions(), ..request };
    let upload = Upload { args, engine: &engine, cancel: &cancel, request };
    let sent = match args.paths() {
        [directory] if args.recursive => upload.tree(directory, &url)?,
        paths => upload.files(paths, &url)?,
    };
    Ok(exit::of_end(sent))
}

/// The uploads of a command.
struct Upload<'a> {
    args: &'a PutArgs,
    engine: &'a Engine,
    cancel: &'a Cancel,
    /// The request common to all files.
    request: PutRequest,
}

impl<'a> Upload<'a> {
    fn files(&self, paths: &[PathBuf], url: &Url) -> Result<Result<(), FailureKind>, Failure> {
        // The record names the destination.
        let to = paths.first().and_then(|path| upload::destination(url, path).ok());
        let batch = self.batch(to.as_ref().unwrap_or(url), Some(paths.len()))?;
        let size_of = |path: &PathBuf| Some(Bytes::new(path.metadata().ok()?.len()));
        let files = paths.iter().map(|path| (path, size_of(path)));
        Ok(batch.run(
            files,
            |(_, size)| *size,
            |session, job, (path, _)| {
                let url = upload::destination(url, path);
                let url = url.inspect_err(|error| say::error(error)).map_err(|error| error.kind())?;
                self.send(session, job, PutRequest { path: path.clone(), url, ..self.request.clone() })
            },
        ))
    }

    /// Sends a directory.
    fn tree(&self, directory: &Path, url: &Url) -> Result<Result<(), FailureKind>, Failure> {
        let options = &self.request.transfer;
        let walk = self.engine.upload_walk(directory, url, options, self.cancel);
        let (walk, target) = walk.map_err(|failure| not_begun(failure, self.cancel))?;
        Ok(self.batch(url, None)?.run_walk(
            walk,
            |file| Some(file.size),
            |session, job, file| {
                if options.resume && target.is_unchanged(&file, self.cancel) {
                    let tag = JobTag::new(job, &SafeUrl::of(&file.url).to_string());
                    let (path, size) = (file.path, file.size);
                    return session.run(&tag, |_| Ok(Done::unchanged(path, size)), UploadError::kind);
                }
                let time = file.time_header();
                let mut request = PutRequest { path: file.path, url: file.url, ..self.request.clone() };
                request.transfer.client.requests.headers.extend(time);
                self.send(session, job, request)
            },
        ))
    }

    fn batch(&self, what: &Url, files: Option<usize>) -> Result<Batch<'a>, Failure> {
        let (what, transfer) = (SafeUrl::of(what).to_string(), &self.args.transfer);
        let lines = transfer.shows_line();
        let session = CommandSession::begin(transfer, Side::Put, &what, files, lines, self.cancel)?;
        let admission = JobAdmission::new(self.args.parallel).with_small(MAX_SMALL_FILES);
        Ok(Batch { engine: self.engine, session, cancel: self.cancel, admission })
    }

    fn send(&self, session: &CommandSession, job: JobId, request: PutRequest) -> FileResult {
        let tag = JobTag::new(job, &SafeUrl::of(&request.url).to_string());
        session.run(&tag, |observer| upload::put(&request, observer, self.cancel), UploadError::kind)
    }
}

/// Creates the request common to all files; path and URL are set for each file.
fn request(args: &PutArgs, url: &Url, cancel: &Cancel) -> anyhow::Result<PutRequest> {
    let common = &args.transfer;
    let several = args.recursive || args.paths().len() > 1;
    // The connections of one file share a pace; the connections of several files would each get all
    // of it.
    let limit = match common.pace {
        Pace::Rate(rate) if several => Some(common.limit.map_or(rate, |limit| limit.min(rate))),
        _ => common.limit,
    };
    let client = common.client.config(cancel)?;
    TransferArgs::warn_of_unused_proxy(&client, std::iter::once(url));
    Ok(PutRequest {
        path: PathBuf::new(),
        url: url.clone(),
        reader: args.reader,
        verify: (!args.no_verify).then_some(common.verify),
        congestion: args.congestion.clone(),
        transfer: common.transfer_options(limit, client)?,
        sessions: Arc::default(),
    })
}

/// Rejects incompatible operands.
fn check(args: &PutArgs, url: &Url) -> anyhow::Result<()> {
    let paths = args.paths();
    if paths.is_empty() {
        bail!("nothing to put: name a file before the URL");
    }
    if args.transfer.client.trust.encrypt && matches!(url.scheme(), "http" | "ftp") {
        bail!(
            "{} takes data in clear; --encrypt needs an https://, ftps:// or gsiftp:// URL",
            SafeUrl::of(url)
        );
    }
    if args.recursive && paths.len() > 1 {
        bail!("-r takes one directory; send others with commands of their own");
    }
    if paths.len() > 1 && !url.path().ends_with('/') {
        bail!("several files need a directory to go to: end the URL in /");
    }
    refuse_duplicates(paths, url)?;
    if let Some(record) = args.transfer.record.file() {
        if paths.iter().any(|path| record::is_same(record, path)) {
            bail!("{} cannot be both the file and its record", record.display());
        }
        if args.recursive && paths.iter().any(|path| record::is_below(record, path)) {
            bail!("{} lies in the directory to be sent; put the record elsewhere", record.display());
        }
    }
    args.transfer.client.check_cleartext(url)?;
    args.transfer.client.logins.check_cleartext_login(url)
}

/// Rejects two files with one destination: the second would replace the first.
fn refuse_duplicates(paths: &[PathBuf], to: &Url) -> anyhow::Result<()> {
    let mut taken = HashMap::new();
    for path in paths {
        // A file without a name is reported at its transfer.
        let Ok(url) = upload::destination(to, path) else { continue };
        let name = SafeUrl::of(&url);
        if let Some(first) = taken.insert(url, path) {
            bail!(
                "{} and {} would both become {name}: put one of them under another name",
                first.display(),
                path.display()
            );
        }
    }
    Ok(())
}
