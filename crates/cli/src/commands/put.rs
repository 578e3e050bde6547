//! `longhaul put PATH... URL`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, ValueHint};
use longhaul_core::event::{JobId, JobObserver, JobTag};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::send::ReaderChoice;
use longhaul_engine::source::http::{ClientConfig, SafeUrl};
use longhaul_engine::upload::{self, FtpSessions, PutRequest};
use longhaul_scope::record::schema::Side;
use url::Url;

use crate::session::Session;
use crate::streams_args::{MemoryArgs, StreamsArgs};
use crate::transfer_args::TransferArgs;
use crate::{exit, interrupt, record, say};

/// What to send, and how.
#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    /// The files, and last where to: the file's http://, https://, ftp:// or gsiftp:// URL, or one ending in / that takes it under its own name (several files need that)
    ///
    /// `longhaul serve --writable` resumes what was interrupted, and compares digests before a file gets its
    /// name. Any other server that takes PUT gets each file in one piece, but for Apache's mod_dav_fs, which gets ranges of a
    /// temporary file where several streams pay.
    // One list, so that options may stand anywhere between them: each run of it counts, and may be of one alone.
    #[arg(required = true, num_args = 1.., value_names = ["PATH", "URL"], value_hint = ValueHint::FilePath)]
    operands: Vec<PathBuf>,

    /// Use this congestion control, as cubic or bbr, instead of the kernel's default
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// How the files are read
    #[arg(long, value_enum, default_value = "auto")]
    reader: ReaderArg,

    /// Does not have the server compare digests before the file gets its name
    #[arg(long, conflicts_with = "verify")]
    no_verify: bool,

    #[command(flatten)]
    streams: StreamsArgs,

    #[command(flatten)]
    memory: MemoryArgs,

    #[command(flatten)]
    transfer: TransferArgs,
}

/// `--reader`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ReaderArg {
    /// sendfile where the page cache has most of the file, else direct where the file system can
    Auto,
    /// From the page cache, without a copy
    Sendfile,
    /// O_DIRECT, past the page cache
    Direct,
}

impl From<ReaderArg> for ReaderChoice {
    fn from(arg: ReaderArg) -> Self {
        match arg {
            ReaderArg::Auto => Self::Auto,
            ReaderArg::Sendfile => Self::Sendfile,
            ReaderArg::Direct => Self::Direct,
        }
    }
}

impl PutArgs {
    /// Returns the files.
    fn paths(&self) -> &[PathBuf] {
        self.operands.split_last().map_or(&[], |(_, paths)| paths)
    }

    /// Reads the last operand, which says where to.
    fn url(&self) -> anyhow::Result<Url> {
        let last = self.operands.last().map(|last| last.to_string_lossy()).unwrap_or_default();
        Url::parse(&last).with_context(|| format!("the last operand, '{last}', must be the URL to put to"))
    }
}

/// Sends every file in turn; the exit code is that of the first that fails.
pub(crate) fn run(args: &PutArgs) -> ExitCode {
    let cancel = Cancel::new();
    let (url, client) = match client(args).and_then(|client| Ok((client, interrupt::listen(&cancel)?))) {
        Ok((client, ())) => client,
        Err(error) => {
            say::error(format_args!("{error:#}"));
            return exit::of_setup(&error).into();
        }
    };
    // A record is of one file alone.
    let to = args.paths().first().and_then(|path| upload::destination(&url, path).ok());
    let what = SafeUrl::of(to.as_ref().unwrap_or(&url)).to_string();
    let session = match args.transfer.begin(Side::Put, &what, args.paths().len()) {
        Ok(session) => session,
        Err(code) => return code.into(),
    };
    let mut first_failure = None;
    let sessions = FtpSessions::default();
    for (path, number) in args.paths().iter().zip(1..) {
        let job = JobId::new(number);
        if let Err(code) = send(args, &url, path, job, (&client, &sessions), (&session, &cancel)) {
            first_failure.get_or_insert(code);
        }
        if cancel.is_cancelled() {
            break;
        }
    }
    session.end();
    first_failure.map_or(ExitCode::SUCCESS, ExitCode::from)
}

fn send(
    args: &PutArgs,
    url: &Url,
    path: &Path,
    job: JobId,
    (client, sessions): (&ClientConfig, &FtpSessions),
    (session, cancel): (&Session, &Cancel),
) -> Result<(), exit::Code> {
    let url = upload::destination(url, path).map_err(|error| {
        say::error(&error);
        exit::of_upload(&error)
    })?;
    let tag = JobTag::new(job, &SafeUrl::of(&url).to_string());
    let streams = args.streams.wanted().map_err(|error| {
        say::error(format_args!("{error:#}"));
        exit::of_setup(&error)
    })?;
    let request = PutRequest {
        path: path.to_owned(),
        url,
        reader: args.reader.into(),
        verify: (!args.no_verify).then(|| args.transfer.verify()),
        streams,
        pace: args.transfer.pace,
        congestion: args.congestion.clone(),
        limit: args.transfer.limit,
        resume: !args.transfer.no_resume,
        retries: args.transfer.retries,
        stall: args.transfer.stall_timeout,
        sample: args.transfer.record.interval(),
        memory: args.memory.memory(),
        client: client.clone(),
        sessions: sessions.clone(),
    };
    let put = |observer: JobObserver<'_>| upload::put(&request, observer, cancel);
    session.run(&tag, put, exit::of_upload)
}

fn client(args: &PutArgs) -> anyhow::Result<(Url, ClientConfig)> {
    let url = args.url()?;
    if args.paths().is_empty() {
        bail!("nothing to put: name a file before the URL");
    }
    if args.paths().len() > 1 && !url.path().ends_with('/') {
        bail!("several files need a directory to go to: end the URL in /");
    }
    refuse_duplicates(args.paths(), &url)?;
    if let Some(record) = args.transfer.record.file() {
        if args.paths().len() > 1 {
            bail!("--record is for one file; send the others with commands of their own");
        }
        if args.paths().iter().any(|path| record::is_same(record, path)) {
            bail!("{} cannot be both the file and its record", record.display());
        }
    }
    args.transfer.warn_of_open_token(&url);
    Ok((url, args.transfer.client()?))
}

/// Two files under one name would be the second alone.
fn refuse_duplicates(paths: &[PathBuf], to: &Url) -> anyhow::Result<()> {
    let mut taken = HashMap::new();
    for path in paths {
        // What has no name is told when its turn comes.
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
