//! `longhaul get --if-newer`: fetches a file only if the server's is newer than the local one.

use std::fs;

use longhaul_core::proto::http::HeaderField;
use longhaul_core::proto::listing::check_name;
use longhaul_core::units::Bytes;
use longhaul_engine::job::{FileHere, Job};
use longhaul_engine::sink::origin_tag;
use longhaul_engine::sink::output::Output;
use longhaul_engine::sink::part_names::is_partial;
use percent_encoding::percent_decode_str;

use crate::summary::Unchanged;

/// Names the job's file after its URL, and makes the request conditional on the local file of that name; returns the local file.
pub(super) fn apply(job: &mut Job) -> Option<Unchanged> {
    let url = job.urls.first()?;
    let last = url.path_segments().and_then(|mut segments| segments.next_back()).unwrap_or_default();
    let of_url = percent_decode_str(last).decode_utf8_lossy().into_owned();
    let named = job.expected.name.as_ref().unwrap_or(&of_url);
    // If the URL has no name, the server provides one, and nothing is replaced.
    let is_name = check_name(named.as_bytes()).is_ok() && !is_partial(named);
    let path = match &job.output {
        Output::File(path) if !path.is_dir() => path.clone(),
        Output::File(directory) | Output::Directory(directory) if is_name => directory.join(named),
        _ => return None,
    };
    if path.is_dir() {
        // The transfer refuses the path, as without --if-newer.
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
