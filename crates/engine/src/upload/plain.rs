//! Uploads to any server that accepts PUT: one request with the whole file, then a check of the
//! resulting size.

use longhaul_core::proto::http::Ask;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::dav;
use super::error::{UploadError, of_bytes};
use super::ranges::RangeSupport;
use super::session::{UploadSession, UploadStep};

/// Sends the whole file, or its ranges if the server accepts them; fails unless the server then has
/// a file of that size.
pub(super) fn send(session: &mut UploadSession<'_>, support: &mut RangeSupport) -> Result<(), UploadError> {
    let size = session.progress.size;
    if support.concurrent.is_some() {
        if dav::send(session, support)? {
            return Ok(());
        }
        // Ranges are not tried again.
        support.concurrent = None;
    }
    session.progress.found(&RangeSet::new(), session.source, session.reader);
    let step = UploadStep {
        name: "the upload",
        query: None,
        ask: Ask::Put(size),
        body: Some(ByteRange::with_len(0, size)),
    };
    session.return_to_original();
    let answer = session.exchange(step)?;
    session.require_success(step.name, &answer)?;
    session.check_source()?;

    let step = UploadStep { name: "to report the size of the file", query: None, ask: Ask::Head, body: None };
    // The target of a redirect may be valid for one request only.
    session.return_to_original();
    let answer = session.exchange(step)?;
    session.require_success(step.name, &answer)?;
    match answer.head.content_length() {
        Some(found) if found == size => Ok(()),
        // Apache states no length for an empty file.
        None if size == Bytes::ZERO => Ok(()),
        found => Err(UploadError::Answer {
            at: session.at(),
            why: format!(
                "it has {} bytes of {}; check what the server did with them",
                of_bytes(found),
                size.get()
            ),
        }),
    }
}
