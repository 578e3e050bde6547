//! `longhaul get --if-newer`: a file is fetched only where the server's is newer than the one that is here.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use longhaul_core::event::Done;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::proto::listing::check_name;
use longhaul_core::units::Bytes;
use longhaul_engine::job::{FileHere, Job, Outcome, TransferError};
use longhaul_engine::sink::origin_tag;
use longhaul_engine::sink::output::Output;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_names::is_partial;
use percent_encoding::percent_decode_str;

use crate::summary::{Complete, Unchanged};

/// What came of a file.
pub(super) enum Fetched {
    Now(Box<Outcome>),
    Unchanged(Unchanged),
    AlreadyThere(Unchanged),
}

impl Complete for Fetched {
    fn done(&self) -> Done {
        match self {
            Self::Now(outcome) => outcome.done(),
            Self::Unchanged(unchanged) | Self::AlreadyThere(unchanged) => unchanged.done(),
        }
    }

    fn is_shown(&self) -> bool {
        matches!(self, Self::Now(_))
    }

    fn note(&self) -> Option<String> {
        match self {
            Self::Now(_) => None,
            Self::Unchanged(unchanged) => {
                Some(format!("{}: not newer on the server", unchanged.path.display()))
            }
            Self::AlreadyThere(unchanged) => Some(format!("{}: already there", unchanged.path.display())),
        }
    }
}

/// Gives the job's file the name of its URL, and asks only for one that is newer than what has the name; returns that.
pub(super) fn apply(job: &mut Job) -> Option<Unchanged> {
    let url = job.urls.first()?;
    let last = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    let of_url = percent_decode_str(last).decode_utf8_lossy().into_owned();
    let named = job.expected.name.as_ref().unwrap_or(&of_url);
    // Where the URL has no name the server gives one, and nothing is replaced.
    let is_name = check_name(named.as_bytes()).is_ok() && !is_partial(named);
    let path = match &job.output {
        Output::File(path) if !path.is_dir() => path.clone(),
        Output::File(directory) | Output::Directory(directory) if is_name => directory.join(named),
        _ => return None,
    };
    if path.is_dir() {
        // Refused as without --if-newer.
        return None;
    }
    job.output = Output::File(path.clone());
    let there = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let modified = there.modified().ok()?;
    let tag = origin_tag::read(&path);
    let matches = tag.as_ref().map(|tag| HeaderField::new("If-None-Match", &tag.to_string()).ok());
    let since = HeaderField::of_date("If-Modified-Since", modified);
    job.options.client.headers.extend(matches.unwrap_or(since));
    job.options.newer_than = Some(FileHere { modified, tag });
    Some(Unchanged { path, size: Bytes::new(there.len()) })
}

/// Fails where the file that is there already is that of another URL of this command, whose files are `ours`.
pub(super) fn unless_of_another(
    result: Result<Outcome, TransferError>,
    ours: &Mutex<HashSet<PathBuf>>,
) -> Result<Outcome, TransferError> {
    let path = match &result {
        Ok(outcome) => &outcome.path,
        Err(TransferError::AlreadyThere { path, .. }) => path,
        Err(_) => return result,
    };
    let is_first = ours.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
    match result {
        Err(TransferError::AlreadyThere { path, .. }) if !is_first => Err(OutputError::Exists(path).into()),
        result => result,
    }
}

/// Returns what came of a file, where `there` is what it was to be newer than.
pub(super) fn outcome(
    result: Result<Outcome, TransferError>,
    there: Option<Unchanged>,
) -> Result<Fetched, TransferError> {
    match (result, there) {
        (Err(TransferError::NotModified), Some(there)) => Ok(Fetched::Unchanged(there)),
        (Err(TransferError::AlreadyThere { path, size }), _) => {
            Ok(Fetched::AlreadyThere(Unchanged { path, size }))
        }
        (result, _) => result.map(|outcome| Fetched::Now(Box::new(outcome))),
    }
}
