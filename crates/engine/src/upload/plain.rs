//! Any server that takes PUT: one request with the whole file, and a look at what stands there afterwards.

use longhaul_core::proto::http::Ask;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::error::{UploadError, of_bytes};
use super::session::{Session, Step};

/// Sends the whole file; it counts only when its size on the server is right.
pub(super) fn send(session: &mut Session<'_>) -> Result<(), UploadError> {
    let size = session.shared.size;
    session.shared.found(Bytes::ZERO, session.source, session.reader);
    let step = Step {
        name: "the upload",
        query: None,
        ask: Ask::Put(size),
        body: Some(ByteRange::with_len(0, size)),
    };
    session.return_to_original();
    let answer = session.say(step)?;
    session.require_success(step.name, &answer)?;
    session.check_source()?;

    let step = Step { name: "to tell the size of what it has got", query: None, ask: Ask::Head, body: None };
    // The URL that the file was redirected to may have been for it alone.
    session.return_to_original();
    let answer = session.say(step)?;
    session.require_success(step.name, &answer)?;
    match answer.head.content_length() {
        Some(found) if found == size => Ok(()),
        // Apache gives an empty file no length.
        None if size == Bytes::ZERO => Ok(()),
        found => Err(UploadError::Answer {
            place: session.place(),
            why: format!(
                "it has {} bytes of {}; check what the server did with them",
                of_bytes(found),
                size.get()
            ),
        }),
    }
}
