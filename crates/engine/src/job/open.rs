//! Opens a job: describes the file, opens its partial file, and finds the ranges left to fetch.

mod combining;
mod resume;

use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::ranges::RangeSet;
use longhaul_core::retry::Retry;
use longhaul_core::units::Bytes;
use url::Url;

use super::already_there;
use super::request::{Expected, Job};
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::known_paths::KnownPaths;
use crate::sink::file_slice::FileSlice;
use crate::sink::journal::{Journal, JournalSource};
use crate::sink::output::{IfExists, Output, PreparedOutput};
use crate::sink::output_error::OutputError;
use crate::sink::part_file::PartFile;
use crate::source::gridftp::GridFtpSource;
use crate::source::http::{HttpSource, SafeUrl, SourceOptions};
use crate::source::{self, Description, Source};
use crate::transfer::Streams;
use crate::transfer::error::TransferError;
pub use combining::RangeEvidence;

use resume::DescribedFile;

/// The state of a job after the first response.
pub(super) struct OpenedJob<'e> {
    pub(super) sources: Vec<Box<dyn Source + 'e>>,
    /// The index of the source that described the file.
    pub(super) primary: usize,
    pub(super) description: Description,
    pub(super) part: PartFile,
    /// Whether an existing file of the final name may be replaced.
    pub(super) replace: bool,
    /// The journal for a later resume; `None` if the server's answer does not permit one.
    pub(super) journal: Option<Journal>,
    /// The ranges that are on the disk already.
    pub(super) committed: RangeSet,
    pub(super) expected: Expected,
}

/// The maximum number of mirrors that a server's answer may add (RFC 6249).
const MAX_DUPLICATES: usize = 16;

/// Describes the file and opens its partial file; on failure, removes the partial file if it holds
/// no data.
pub(super) fn open<'e>(
    engine: &'e Engine,
    job: &Job,
    paths: &KnownPaths,
    cancel: &Cancel,
    emit: &dyn Fn(&Event),
) -> Result<OpenedJob<'e>, TransferError> {
    let options = source_options(job);
    let trusted_origin = job.options.logins_for.as_ref().or(job.urls.first()).map(source::origin);
    let source_of = |url: &Url| -> Box<dyn Source + 'e> {
        let is_trusted = Some(source::origin(url)) == trusted_origin;
        source_of(engine, url, options.clone(), is_trusted, paths)
    };
    // Before any network access, so that an unwritable output fails at once.
    let output = job.output.prepare()?.treating_existing(job.options.existing.if_exists);
    let output = output.claiming(job.options.existing.claims.clone());
    let mut opener = Opener { job, output, cancel, emit, part: None, starts_apart: false };
    opener.open_early()?;
    let mut opened = opener.open_any(job.urls.iter().map(source_of).collect());
    if matches!(opened, Err(TransferError::OtherFile(_))) && opener.start_apart()? {
        opened = opener.open_any(job.urls.iter().map(source_of).collect());
    }
    let mut opened = opened.inspect_err(|_| {
        if let Some(part) = opener.part.take() {
            part.abandon();
        }
    })?;
    let is_usable = |url: &Url| {
        !(job.urls.contains(url) || (job.options.transfer.client.encrypt && url.scheme() == "http"))
    };
    for url in opened.description.published.duplicates.iter().take(MAX_DUPLICATES) {
        if is_usable(url) {
            opened.sources.push(source_of(url));
        }
    }
    opened.keep_primary_alone_if_needed(emit);
    Ok(opened)
}

fn source_options(job: &Job) -> SourceOptions {
    SourceOptions {
        transfer: job.options.transfer.clone(),
        assume_unchanged: job.options.assume_unchanged,
        // Up to the range, all of the file would be read and discarded.
        needs_ranges: matches!(job.output, Output::Slice(_)),
    }
}

/// Creates a source by the URL's scheme; a login is meant for the first server named by the user
/// (`is_trusted`), not for mirrors or URLs of a metalink or a list.
fn source_of<'e>(
    engine: &'e Engine,
    url: &Url,
    mut options: SourceOptions,
    is_trusted: bool,
    paths: &KnownPaths,
) -> Box<dyn Source + 'e> {
    if !is_trusted {
        options.transfer.client = options.transfer.client.without_secrets();
    }
    match url.scheme() {
        "ftp" | "ftps" | "gsiftp" => {
            if !is_trusted {
                // FTP sends a login unasked, and often in clear text.
                options.transfer.client.logins.netrc.file = None;
            }
            Box::new(GridFtpSource::new(url.clone(), options, &engine.sessions, paths.paths()))
        }
        _ => Box::new(HttpSource::new(url.clone(), options, &engine.clients, paths.paths())),
    }
}

/// Connects to the server of a job's first URL, and holds the connection for a job expected within
/// seconds.
pub(super) fn hold_early(engine: &Engine, job: &Job, paths: &KnownPaths) -> Result<(), Failure> {
    let Some(url) = job.urls.first().filter(|url| matches!(url.scheme(), "http" | "https")) else {
        return Ok(());
    };
    let source = HttpSource::new(url.clone(), source_options(job), &engine.clients, paths.paths());
    Ok(source.hold_early()?)
}

/// Creates the journal's entry of a source.
pub(super) fn journal_source(url: &Url, identity: Identity) -> JournalSource {
    JournalSource::new(url.as_str(), SafeUrl::of(url).to_string(), identity)
}

impl OpenedJob<'_> {
    /// Drops the mirrors if they cannot be used: the file is sent in one response only, whose bytes
    /// must not be mixed with others, or the output is a stream, which takes bytes in order.
    fn keep_primary_alone_if_needed(&mut self, emit: &dyn Fn(&Event)) {
        let is_stream = self.part.is_stream();
        if (self.description.combines_answers() && !is_stream) || self.sources.len() == 1 {
            return;
        }
        let primary = self.sources.swap_remove(self.primary);
        let reason = if is_stream {
            format!("{} is written in its order, from one source", self.part.path().display())
        } else {
            format!("{} sends the file in one answer only", primary.shown())
        };
        for mirror in std::mem::replace(&mut self.sources, vec![primary]) {
            let (url, reason) = (mirror.shown().to_owned(), reason.clone());
            emit(&Event::Warning(Warning::SourceDropped { url, reason }));
        }
        self.primary = 0;
    }
}

struct Opener<'a> {
    job: &'a Job,
    output: PreparedOutput,
    cancel: &'a Cancel,
    emit: &'a dyn Fn(&Event),
    part: Option<PartFile>,
    /// Whether the partial file of another transfer to the name is left alone, although it is of a
    /// URL of this job.
    starts_apart: bool,
}

impl Opener<'_> {
    /// Opens the file by the first source that can describe it.
    ///
    /// The first URL defines the file, even if its server supports no ranges; a mirror's bytes
    /// could then not be compared.
    fn open_any<'e>(&mut self, sources: Vec<Box<dyn Source + 'e>>) -> Result<OpenedJob<'e>, TransferError> {
        let mut failures = Vec::new();
        let several = sources.len() > 1;
        let mut hopeless = vec![false; sources.len()];
        let mut other_file = None;
        // A busy or slow source is waited for, and one that fails at ranges asked for the whole
        // file, only if no other source can describe it.
        for waits in [false, true] {
            for (index, source) in sources.iter().enumerate() {
                if hopeless[index] {
                    continue;
                }
                let error = match self.begin(index, source.as_ref(), waits || !several) {
                    Ok(begun) => return self.opened(sources, index, begun),
                    Err(error) => error,
                };
                source.abandon();
                hopeless[index] = match &error {
                    _ if !several => return Err(error),
                    TransferError::Failed(failed) if failed.cause == Cause::Interrupted => return Err(error),
                    TransferError::Failed(failed) => {
                        let is_settled = failed.retry == Retry::Never && !failed.may_be_of_ranges();
                        waits || is_settled || failed.cause == Cause::Unreachable
                    }
                    // Another source may still have the file of the partial file.
                    TransferError::OtherFile(_) => true,
                    _ => return Err(error),
                };
                let (url, reason) = (source.shown().to_owned(), error.to_string());
                if hopeless[index] {
                    failures.push(reason.clone());
                }
                (self.emit)(&Event::Warning(Warning::SourceDropped { url, reason }));
                if matches!(error, TransferError::OtherFile(_)) {
                    other_file.get_or_insert(error);
                }
            }
        }
        Err(other_file.unwrap_or_else(|| {
            let message = format!("no source of the file can be used: {}", failures.join("; "));
            Failure::new(FailureKind::Unavailable, message).into()
        }))
    }

    fn opened<'e>(
        &mut self,
        sources: Vec<Box<dyn Source + 'e>>,
        primary: usize,
        begun: DescribedFile,
    ) -> Result<OpenedJob<'e>, TransferError> {
        let DescribedFile { mut description, mut journal, mut committed } = begun;
        let part = self.part.take().map_or_else(|| self.open_named(description.file.name.as_deref()), Ok)?;
        let mut expected = self.job.expected.clone();
        if !description.combines_answers() {
            description.published.duplicates.clear();
        }
        // The user's checksum takes precedence over the server's, which is that of the whole file.
        if !part.is_slice() && expected.checksums.is_empty() {
            expected.checksums.extend(description.published.digest.clone());
        }
        if expected.by_server && expected.checksums.is_empty() {
            expected.stated_by = description.published.digest_on_request;
            if expected.stated_by.is_none() {
                let at = sources[primary].shown();
                let message = format!(
                    "{at} states no digest of the file; give one with --checksum ALG:HEX, or leave --checksum server out"
                );
                sources[primary].abandon();
                part.abandon();
                return Err(Failure::new(FailureKind::Data, message).into());
            }
        }
        if expected.checksums.is_empty() {
            // Duplicates are used only with a digest that proves their bytes (RFC 6249, section 6).
            description.published.duplicates.clear();
        }
        if let Some(journal) = &mut journal {
            self.drop_refuted(journal, &mut committed, expected.checksums.first());
        }
        let several = !matches!(self.job.options.transfer.streams, Streams::Fixed(1) | Streams::Auto);
        // An empty file has no ranges and needs none.
        if several && !description.ranges.divisible && description.file.size != Some(Bytes::ZERO) {
            let unidentified = description.file.identity.is_none() && description.file.size.is_some();
            let warning = if unidentified { Warning::NoIdentity } else { Warning::NoRanges };
            (self.emit)(&Event::Warning(warning));
        }
        let replace = self.output.replaces();
        Ok(OpenedJob { sources, primary, description, part, replace, journal, committed, expected })
    }

    /// Returns the range of a shared file, if the job is to fetch one, with the ranges that need
    /// not be fetched.
    fn slice(&self) -> Option<(&FileSlice, RangeSet)> {
        let kept = self.part.as_ref().and_then(PartFile::kept_of_slice);
        match &self.job.output {
            Output::Slice(slice) => Some((slice, slice.committed(kept))),
            _ => None,
        }
    }

    /// Opens the partial file if its name is known before the server's answer.
    fn open_early(&mut self) -> Result<(), OutputError> {
        let named = self.job.expected.name.as_deref();
        let is_known = self.output.name().is_some() || named.is_some();
        self.part = match is_known.then(|| self.open_named(named)) {
            // Only the server's answer shows whether the existing file is complete.
            Some(Err(OutputError::Exists(_))) if self.job.options.existing.accept_complete => None,
            early => early.transpose()?,
        };
        Ok(())
    }

    /// Opens a partial file of another name, if the job permits one: the present one is of another
    /// file, and stays. Returns whether it did.
    fn start_apart(&mut self) -> Result<bool, OutputError> {
        let may = self.job.options.existing.if_exists == Some(IfExists::Number { resumes: false });
        if may {
            (self.part, self.starts_apart) = (None, true);
            self.open_early()?;
        }
        Ok(may)
    }

    fn open_named(&self, name: Option<&str>) -> Result<PartFile, OutputError> {
        let urls = &self.job.urls;
        let is_ours = |journal: &Journal| {
            !self.starts_apart && urls.iter().any(|url| journal.source(url.as_str()).is_some())
        };
        match self.job.options.existing.if_exists {
            Some(IfExists::Number { resumes }) => self.output.open_numbered(name, resumes, is_ours),
            _ => self.output.open(name),
        }
    }

    /// Opens the partial file under the name from the metalink, the server or the URL, in this
    /// order.
    fn open_output(&self, source: &dyn Source, description: &Description) -> Result<PartFile, TransferError> {
        let name = self.job.expected.name.as_deref().or(description.file.name.as_deref());
        match self.open_named(name) {
            Err(OutputError::Exists(path)) if self.job.options.existing.accept_complete => {
                let size = description.file.size.unwrap_or_default();
                let complete = already_there::is_complete(self.job, &path, description, self.cancel);
                source.abandon();
                Err(match complete {
                    Some(true) => TransferError::AlreadyThere { path, size },
                    Some(false) => OutputError::Exists(path).into(),
                    None => Failure::interrupted().into(),
                })
            }
            opened => Ok(opened?),
        }
    }

    fn check_description(&self, source: &dyn Source, description: &Description) -> Result<(), TransferError> {
        if self.job.expected.is_listed && description.file.is_directory {
            let shown = source.shown();
            let message = format!(
                "{shown} is a directory, to which its listing links as to a file; fetch it by get -r {shown}/"
            );
            return Err(Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).into());
        }
        if let Some((size, limit)) = description.file.size.zip(self.job.options.max_size)
            && size > limit
        {
            let message =
                format!("{} has {} bytes, more than the {limit} of --max-size", source.shown(), size.get());
            return Err(Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).into());
        }
        if let Some((expected, stated)) = self.job.expected.modified.zip(description.file.modified)
            && self.job.expected.is_dated
            && whole_seconds(expected) != whole_seconds(stated)
        {
            let date = |time| HeaderField::of_date("Last-Modified", time);
            let shown =
                |time| date(time).map_or_else(|| "an unknown time".into(), |date| date.value().to_owned());
            let (at, stated, expected) = (source.shown(), shown(stated), shown(expected));
            let message = format!("{at} was changed: it is dated {stated}, not {expected}");
            return Err(Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).into());
        }
        match self.job.expected.size {
            Some(expected) if description.file.size != Some(expected) => {
                let sent = description
                    .file
                    .size
                    .map_or_else(|| "an unknown size".to_owned(), |size| format!("{} bytes", size.get()));
                Err(Failure::new(
                    FailureKind::Data,
                    format!(
                        "{} has {sent}, not the {} bytes that are expected",
                        source.shown(),
                        expected.get()
                    ),
                )
                .caused_by(Cause::OtherFile)
                .into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns a time as it is stated by servers, in whole seconds.
fn whole_seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
