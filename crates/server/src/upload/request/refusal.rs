//! Replies to refused uploads; details that clients must not see go to the log.

use std::error::Error;
use std::fmt::Display;
use std::io;

use longhaul_core::failure::FailureKind;
use longhaul_core::proto::http::{ReplyHead, UPLOAD_OFFSET, UPLOAD_RANGES, held_ranges};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::output_error::OutputError;
use rustix::io::Errno;

use crate::reply::Reply;

/// 423: a paused upload of this name was begun with another token.
pub(crate) fn of_another_token() -> Reply {
    // The client adds its advice.
    Reply::text(423, "a paused upload of another token has this name")
}

/// 409: the part's offset is not that of the upload.
pub(crate) fn offset_mismatch(offset: Bytes) -> Reply {
    let head = ReplyHead::new(409).with(UPLOAD_OFFSET, &offset.get().to_string());
    Reply::explained(head, "the upload stands at another offset")
}

/// 409: the upload is to be completed, and ranges of it are missing.
pub(crate) fn incomplete(held: &RangeSet, whole: Bytes) -> Reply {
    const SHOWN: usize = 5;
    let missing = held.gaps(ByteRange::with_len(0, whole));
    let offset = missing.first().map_or(whole.get(), |first| first.start());
    let mut shown: Vec<_> = missing.iter().take(SHOWN).map(|gap| format!("{gap}")).collect();
    if missing.len() > SHOWN {
        shown.push(format!("and {} more ranges", missing.len() - SHOWN));
    }
    let head =
        ReplyHead::new(409).with(UPLOAD_OFFSET, &offset.to_string()).with(UPLOAD_RANGES, &held_ranges(held));
    Reply::explained(head, &format!("the upload lacks {}", shown.join(", ")))
}

/// 503: an upload has ended on this server before the request did.
pub(crate) fn ended() -> Reply {
    Reply::text(503, "the upload was ended here; ask how far it is, and go on")
}

/// 503: as many ranges of one upload as allowed are being received.
pub(crate) fn too_many_ranges() -> Reply {
    Reply::later(503, 5, "the upload has as many connections as the server allows")
}

/// 400: the upload is of a file of another size.
pub(crate) fn other_length() -> Reply {
    Reply::text(400, "the upload was begun with another Upload-Length")
}

/// 404: the server has no such upload.
pub(crate) fn no_upload() -> Reply {
    Reply::text(404, "nothing is there of this upload")
}

/// Maps an error of opening the target's directory to a status.
pub(crate) fn directory(error: &io::Error) -> Reply {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => {
            Reply::text(409, "the directory does not exist; it must be made on the server")
        }
        Some(Errno::XDEV | Errno::LOOP) => Reply::text(403, "nothing may be written there"),
        _ => of_kernel("a directory cannot be used", error, error),
    }
}

/// Maps an error of creating or writing the partial file to a status.
pub(crate) fn output(error: &OutputError) -> Reply {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |cause| (*cause).source());
    match error {
        OutputError::IsDirectory(_) => Reply::text(409, "there is a directory of this name"),
        OutputError::Exists(_) => Reply::text(412, "there is a file of this name"),
        OutputError::Busy(_) => busy(),
        OutputError::NotAFile(_) => in_the_way(error),
        OutputError::Failed(failure) if failure.kind == FailureKind::Host => exhausted(error),
        _ => match causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).last() {
            Some(source) => of_kernel("a file cannot be written", source, error),
            None => internal("a file cannot be written", error),
        },
    }
}

/// Maps what the kernel says to a status, and to words that tell a client nothing of the host; the
/// log has the whole `error`.
fn of_kernel(what: &str, source: &io::Error, error: &dyn Display) -> Reply {
    match Errno::from_io_error(source) {
        // Some file systems do not reserve space, and fail only when it is written.
        Some(Errno::NOSPC | Errno::DQUOT) => full(error),
        _ if source.kind() == io::ErrorKind::StorageFull => full(error),
        Some(Errno::FBIG) => too_large(),
        Some(Errno::ROFS) => Reply::text(403, "the server's file system is read-only"),
        Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => in_the_way(error),
        Some(Errno::ACCESS | Errno::PERM) => Reply::text(403, "nothing may be written there"),
        Some(Errno::NAMETOOLONG) => Reply::text(414, "the name is too long"),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => exhausted(error),
        Some(errno) => {
            tracing::error!(%error, "{what}");
            Reply::text(500, &format!("the server's file system fails: {errno}; its log says where"))
        }
        // What is no file cannot be opened as one.
        None if source.kind() == io::ErrorKind::InvalidInput => in_the_way(error),
        None => internal(what, error),
    }
}

/// 403: a link, a directory or a socket has the name of a file, its partial file or its journal,
/// and only the host's users can remove it.
fn in_the_way(error: &dyn Display) -> Reply {
    tracing::warn!(%error, "what has the name of an upload is no file: remove it");
    Reply::text(
        403,
        "what has this name, or that of the partial file, is no file; the server's log says where",
    )
}

/// 413: no file of this size can be stored.
pub(crate) fn too_large() -> Reply {
    Reply::text(413, "the file is larger than the server may store")
}

/// The quota that has too little left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverQuota {
    /// That of all uploads.
    OfAll,
    /// That of the upload's token.
    OfToken,
    /// The number of unfinished uploads of a token.
    TooMany,
}

/// 507: the unfinished uploads of the server, or of a token, would take more space than they may,
/// or are too many.
pub(crate) fn over_quota(over: OverQuota) -> Reply {
    let what = match over {
        OverQuota::OfAll => "of all tokens would exceed their quota",
        OverQuota::OfToken => "of this token would exceed their quota",
        OverQuota::TooMany => "of this token are as many as the server keeps",
    };
    let why = format!(
        "the unfinished uploads {what}: GET /DIR/?uploads lists those of this token, and with the right to \
         delete those of all; DELETE /DIR/NAME?upload=ID, with the id of that list, frees the space of one"
    );
    Reply::text(507, &why)
}

/// 503: the space of the unfinished uploads of earlier runs is not yet known.
pub(crate) fn not_scanned() -> Reply {
    Reply::later(503, 5, "the server still counts its unfinished uploads; try again")
}

/// 423: another upload has locked the file, or another request the range.
pub(crate) fn busy() -> Reply {
    Reply::later(423, 5, "the file, or this range of it, is being written by another upload")
}

/// 503: as many uploads as allowed are in progress.
pub(crate) fn too_many_uploads() -> Reply {
    Reply::later(503, 5, "the server is busy with other uploads; try again")
}

/// 503: the server lacks memory, threads or descriptors.
pub(crate) fn exhausted(why: &dyn Display) -> Reply {
    tracing::warn!(%why, "out of resources");
    Reply::later(503, 5, "the server lacks memory, threads or open files at present; try again")
}

/// 507: an upload would take of the reserve of the disk.
pub(crate) fn reserve_reached() -> Reply {
    tracing::warn!("an upload is refused: a part of its disk's space and inodes stays free");
    Reply::text(
        507,
        "there is not enough space on the server's disk, or too few inodes: a part of both stays free",
    )
}

fn full(error: &dyn Display) -> Reply {
    tracing::warn!(%error, "no space");
    Reply::text(507, "there is not enough space on the server's disk")
}

fn internal(what: &str, error: &dyn Display) -> Reply {
    tracing::error!(%error, "{what}");
    Reply::text(500, "the file could not be written; the server's log says why")
}
