//! Whether ranges of a file that several answers hold may be combined, as its server shows it.

use longhaul_core::checksum::Checksum;
use longhaul_core::failure::Failure;
use longhaul_core::identity::Identity;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use url::Url;

use super::source_of;
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::known_paths::KnownPaths;
use crate::source::http::SourceOptions;
use crate::source::{self, DescribeRequest, Resume};
use crate::transfer::TransferOptions;

/// What the answer to a request for one byte of a file shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeEvidence {
    /// Whether ranges of the file that several answers hold may be combined.
    pub combines: bool,
    /// The digest of the whole file that the server states.
    pub digest: Option<Checksum>,
}

impl Engine {
    /// Requests the last byte of a file; returns whether the answer is that range of a file of this
    /// size, with evidence by which other ranges are known to be of the same state, and the file's
    /// digest, if it is stated. The client's logins are for the server of `logins_for` only.
    ///
    /// Servers to which another one redirects may state different evidence of one file, so that
    /// theirs counts for nothing.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    pub fn combines_ranges(
        &self,
        url: &Url,
        size: Bytes,
        options: &TransferOptions,
        logins_for: &Url,
        cancel: &Cancel,
    ) -> Result<RangeEvidence, Failure> {
        let paths = KnownPaths::read(options.memory.as_deref(), &|_| ());
        let is_trusted = source::origin(url) == source::origin(logins_for);
        let options =
            SourceOptions { transfer: options.clone(), assume_unchanged: false, needs_ranges: false };
        let source = source_of(self, url, options, is_trusted, &paths);
        let last = ByteRange::new(size.get().saturating_sub(1), size.get());
        let described = source.describe(&DescribeRequest {
            resume: Some(Resume { gap: last, identity: Identity::AssumedUnchanged }),
            at_most: Some(last.len()),
            left: Some(last.len()),
            waits: true,
            falls_back: false,
            cancel,
            emit: &|_| (),
        });
        source.abandon();
        let described = described?;
        let is_range = described.ranges.first.start() == last.start() && described.file.size == Some(size);
        let is_here = described.path.endpoint.as_ref().is_some_and(|endpoint| endpoint.is_at_host_of(url));
        let combines = is_range && is_here && described.combines_answers();
        Ok(RangeEvidence { combines, digest: described.published.digest })
    }
}
