//! Uploads to any server that accepts PUT: one request with the whole file, then a check of the
//! resulting size.

use longhaul_core::event::{Event, Warning};
use longhaul_core::proto::http::Ask;
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;

use super::dav;
use super::error::UploadError;
use super::http_upload::PATIENCE;
use super::session::{UploadSession, UploadStep};

/// Sends the whole file, or its ranges if the server accepts them; fails if the server then reports
/// another size.
pub(super) fn send(
    session: &mut UploadSession<'_>,
    max_ranges: &mut Option<usize>,
) -> Result<(), UploadError> {
    let size = session.context.progress.size;
    if let Some(most) = *max_ranges {
        if dav::send(session, most)? {
            return Ok(());
        }
        // Ranges are not tried again.
        *max_ranges = None;
        session.context.found(&RangeSet::new());
    }
    let put = UploadStep::new("the upload", Ask::Put { length: size, expects: true });
    let step = UploadStep { body: Some(ByteRange::with_len(0, size)), ..put };
    session.return_to_original();
    let answer = session.exchange(step)?;
    session.require_success(step.name, &answer)?;
    session.context.source.check()?;
    check_size(session)
}

/// Compares the size of the file on the server.
///
/// The server has reported success, and may permit nothing but PUT (an upload link of S3) or compress answers: without a size to compare, a
/// warning is emitted.
fn check_size(session: &mut UploadSession<'_>) -> Result<(), UploadError> {
    let size = session.context.progress.size;
    let step = UploadStep::new("to report the size of the file", Ask::Head);
    // The target of a redirect may be valid for one request only.
    session.return_to_original();
    session.patience = Some(PATIENCE);
    let answer = session.exchange(step).or_else(|error| match error {
        // The server may have closed the connection after the upload.
        UploadError::Http(error) if error.is_broken_connection() => session.exchange(step),
        error => Err(error),
    });
    let reason = match answer {
        Err(error) if error.is_cancelled() => return Err(error),
        Err(error) => error.to_string(),
        Ok(answer) => {
            let (head, at) = (&answer.head, session.at());
            let is_coded = |coding: &str| !matches!(coding.trim(), "" | "identity");
            match (head.status(), head.content_length()) {
                (200..=299, Some(found)) if found == size => return Ok(()),
                // Apache states no length for an empty file.
                (200..=299, None) if size == Bytes::ZERO => return Ok(()),
                (200..=299, None) => format!("{at} states no size"),
                (200..=299, Some(_)) if head.text("content-encoding").is_some_and(is_coded) => {
                    format!("{at} states the size of the file in a content coding")
                }
                (200..=299, Some(found)) => {
                    let why = format!(
                        "it has {} bytes of {}; check what the server did with them",
                        found.get(),
                        size.get()
                    );
                    return Err(UploadError::answer(&at, &why));
                }
                (status, _) => format!("{at} answers {status} to HEAD"),
            }
        }
    };
    session.context.progress.emit(&Event::Warning(Warning::NotVerified { reason }));
    Ok(())
}
