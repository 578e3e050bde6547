//! Uploads ranges of one file to Apache's mod_dav_fs, which stores PUT with Content-Range at the
//! range's offset.
//!
//! ```text
//!   PUT name.longhaul-X, byte 1 --> HEAD: two bytes? --> PUT name.longhaul-X, ranges --> HEAD: the size? --> MOVE
//!                                         '-- no: DELETE, and one PUT of the whole file
//!
//!   MOVE, Overwrite: F --412--> HEAD name: its ETag --> MOVE, Overwrite: T, If: that ETag
//! ```
//!
//! RFC 9110, section 14.5, lets a server ignore Content-Range: the part would replace the file.
//! Ranges therefore go to a temporary name, and only if OPTIONS names mod_dav_fs and a test with a
//! range of one byte succeeds.
//!
//! MOVE with Overwrite: T deletes a directory of the target's name with everything in it (RFC 4918,
//! section 9.9.3). It is therefore used only to replace a file whose ETag the server has just sent.
//! A race remains between the server's own comparison and its rename.

use std::time::{Duration, Instant};

use longhaul_core::proto::http::{ETag, FileRange, RequestMethod, ResponseHead};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::Bytes;

use super::error::UploadError;
use super::ranges::{self, RangeTarget};
use super::request::PutRequest;
use super::session::{UploadSession, UploadStep};
use crate::cancel::Cancel;
use crate::source::http::{Connection, HttpError, ResolvedUrl};
use crate::streams::CountControl;

/// The compliance class by which mod_dav_fs identifies itself in the DAV field.
const MOD_DAV_FS: &str = "<http://apache.org/dav/propset/fs/1>";
/// The timeout for deleting the temporary file after a failure or an interrupt.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the number of connections for ranges, from the answer to OPTIONS; `None` if ranges are
/// not to be tried.
pub(super) fn max_ranges(head: &ResponseHead, request: &PutRequest) -> Option<usize> {
    let is_apache = head.text("server").is_some_and(|server| server.starts_with("Apache"));
    // Several requests would conflict with a condition on the state of the file.
    let conditional = request
        .transfer
        .client
        .requests
        .headers
        .iter()
        .any(|header| header.name().get(..3).is_some_and(|start| start.eq_ignore_ascii_case("if-")));
    let plain_name = request.url.query().is_none();
    (is_apache && head.has_member("dav", MOD_DAV_FS) && plain_name && !conditional).then_some(MAX_STREAMS)
}

/// Sends the file as ranges of a temporary file, if several streams pay. Returns whether the file
/// has its final name; if not, the server is unchanged, and accepts no ranges.
pub(super) fn send(session: &mut UploadSession<'_>, max_ranges: usize) -> Result<bool, UploadError> {
    let size = session.context.progress.size;
    if session.target.is_redirected() || size < Bytes::new(2) {
        return Ok(false);
    }
    let Some(control) = ranges::control(session, Some(max_ranges), &RangeSet::new()) else {
        return Ok(false);
    };
    let file = session.target.clone();
    let temporary = file.beside(&format!(".longhaul-{:016x}", fastrand::u64(..)));
    session.aim(temporary.clone());
    let sent = send_under(session, &temporary, &file, control);
    if !matches!(sent, Ok(true)) {
        // Includes a login that the server has requested meanwhile.
        let login = Some(&session.target).filter(|target| target.url() == temporary.url()).cloned();
        discard(session, login.unwrap_or(temporary));
    }
    session.return_to_original();
    sent
}

/// Sends the file under the `temporary` name, and moves it to the name of `file`.
fn send_under(
    session: &mut UploadSession<'_>,
    temporary: &ResolvedUrl,
    file: &ResolvedUrl,
    control: CountControl,
) -> Result<bool, UploadError> {
    let size = session.context.progress.size;
    if !stores_ranges(session, size)? || session.target.url() != temporary.url() {
        return Ok(false);
    }
    // The answer to the test request may have required a login.
    let target = RangeTarget { url: session.target.clone(), query: None, hash: false, began: false };
    match ranges::send(session, &target, &RangeSet::new(), control) {
        // If the streams fail, one request shows whether the server accepts the file.
        Err(UploadError::Streams(error)) if !session.context.progress.cancel.is_cancelled() => {
            session.context.source.check()?;
            tracing::warn!("{error}: the file is sent in one piece");
            return Ok(false);
        }
        sent => sent?,
    }
    session.context.source.check()?;
    let length = session.exchange(step(RequestMethod::Head))?;
    if length.head.status() != 200 || length.head.content_length() != Some(size) {
        tracing::warn!("{} has not the size of what was sent: the file is sent in one piece", session.at());
        return Ok(false);
    }
    let status = rename(session, file)?;
    let is_moved = matches!(status, 201 | 204);
    if !is_moved {
        tracing::warn!("{} was not moved ({status}): the file is sent in one piece", session.at());
    }
    Ok(is_moved)
}

/// Moves the temporary file to the name of `file`, replacing only a file; returns the status of the
/// last answer.
fn rename(session: &mut UploadSession<'_>, file: &ResolvedUrl) -> Result<u16, UploadError> {
    let to = file.url().as_str();
    let status = session.exchange(step(RequestMethod::Move { to, replaces: None }))?.head.status();
    if status != 412 {
        return Ok(status);
    }
    let temporary = session.target.clone();
    session.aim(file.clone());
    let there = session.exchange(step(RequestMethod::Head))?;
    let is_file = there.head.status() == 200 && session.target.url() == file.url();
    session.aim(temporary);
    // A directory has no ETag.
    let tag = there.head.text("etag").and_then(ETag::parse).filter(|_| is_file);
    match tag {
        Some(tag) => {
            Ok(session.exchange(step(RequestMethod::Move { to, replaces: Some(&tag) }))?.head.status())
        }
        None => Ok(status),
    }
}

/// Sends the second byte, and requests the resulting size.
fn stores_ranges(session: &mut UploadSession<'_>, whole: Bytes) -> Result<bool, UploadError> {
    let range = ByteRange::new(1, 2);
    let probe = UploadStep { body: Some(range), ..step(RequestMethod::PutRange(FileRange { range, whole })) };
    let mut size = |connection: &mut Connection| Ok(connection.send(RequestMethod::Head).map(|()| true)?);
    let stored = session.exchange_before(probe, Some(&mut size))?;
    if !(200..300).contains(&stored.head.status()) {
        session.close();
        return Ok(false);
    }
    let found = match session.trailing_answer()? {
        Some(found) => found,
        None => session.exchange(step(RequestMethod::Head))?,
    };
    Ok(found.head.status() == 200 && found.head.content_length() == Some(Bytes::new(range.end())))
}

fn step(method: RequestMethod<'_>) -> UploadStep<'_> {
    UploadStep::new("a part of the file", method)
}

/// Deletes the temporary file, even after an interrupt; warns if it remains.
fn discard(session: &mut UploadSession<'_>, mut temporary: ResolvedUrl) {
    session.close();
    let cancel = Cancel::new().child_until(Instant::now() + DISCARD_TIMEOUT);
    let delete = |target: &mut ResolvedUrl| {
        let mut connection = session.client.connect_fresh(target, &cancel)?;
        connection.send(RequestMethod::Delete)?;
        Ok::<_, HttpError>(connection.read_head()?.status())
    };
    match delete(&mut temporary) {
        Ok(200..300 | 404) => {}
        Ok(status) => tracing::warn!("{} is left on the server: {status}", temporary.safe_url()),
        Err(error) => tracing::warn!("{} may be left on the server: {error}", temporary.safe_url()),
    }
}
