//! `longhaul get --if-newer`: fetches a file only if the server's is newer than the local one.

use std::fs;
use std::path::PathBuf;

use longhaul_core::event::Done;
use longhaul_core::proto::http::{FileName, HeaderField};
use longhaul_core::proto::listing::check_name;
use longhaul_core::units::Bytes;
use longhaul_engine::job::{FileHere, Job};
use longhaul_engine::sink::origin_tag;
use longhaul_engine::sink::output::Output;
use longhaul_engine::sink::part_names::is_partial;
use url::Url;

/// Returns the path that a file has with --if-newer: named after its URL, unless it has a name;
/// `None` if the URL has none, or the name is that of a directory. The server then provides a name,
/// and nothing is replaced.
pub(super) fn path_of(output: &Output, url: &Url, named: Option<&String>) -> Option<PathBuf> {
    let of_url = FileName::from_url_path(url.path());
    let named = named.map(String::as_str).or(of_url.as_ref().map(FileName::as_str)).unwrap_or_default();
    let is_name = check_name(named.as_bytes()).is_ok() && !is_partial(named);
    let path = match output {
        Output::File(path) if !path.is_dir() => path.clone(),
        Output::File(directory) | Output::Directory(directory) if is_name => directory.join(named),
        _ => return None,
    };
    // The transfer refuses a directory, as without --if-newer.
    (!path.is_dir()).then_some(path)
}

/// Names the job's file after its URL, and makes the request conditional on the local file of that
/// name; returns the local file.
pub(super) fn apply(job: &mut Job) -> Option<Done> {
    let path = path_of(&job.output, job.urls.first()?, job.expected.name.as_ref())?;
    job.output = Output::File(path.clone());
    let there = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let modified = there.modified().ok()?;
    let tag = origin_tag::read(&path);
    let matches = tag.as_ref().map(|tag| HeaderField::new("If-None-Match", &tag.to_string()).ok());
    let since = HeaderField::of_date("If-Modified-Since", modified);
    job.options.transfer.client.requests.headers.extend(matches.unwrap_or(since));
    job.options.existing.newer_than = Some(FileHere { modified, tag });
    Some(Done::unchanged(path, Bytes::new(there.len())))
}
