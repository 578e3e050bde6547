//! MKCOL: makes a directory (RFC 4918, section 9.3).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use longhaul_core::proto::http::{ReplyHead, RequestBody, RequestHead, TargetPath};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::part_names::is_partial;

use crate::reply::Reply;
use crate::reply::static_files::StaticFiles;
use crate::upload::registry::disk_reserve::leaves_reserve;
use crate::upload::request::refusal;

/// Makes the directory at `path`; those above it must exist.
pub(crate) fn make(files: &StaticFiles, path: &TargetPath, request: &RequestHead) -> Reply {
    if request.body() != RequestBody::None {
        return Reply::text(415, "a directory is made without a body");
    }
    let Some((name, above)) = path.names().split_last() else { return exists() };
    if (path.is_hidden() && !files.hidden) || path.names().iter().any(is_partial) {
        return Reply::text(403, "directories of this name are not made");
    }
    let made = files.root.directory(above).and_then(|directory| {
        let name = OsStr::from_bytes(name);
        // What is there already may be of any kind: nothing is followed or opened.
        match directory.look(name, false) {
            Ok(_) => Ok(exists()),
            _ if !leaves_reserve(&directory, Bytes::ZERO) => Ok(refusal::reserve_reached()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                directory.make_beneath(Path::new(name))?;
                directory.sync()?;
                Ok(Reply::empty(ReplyHead::new(201)))
            }
            Err(error) => Err(error),
        }
    });
    made.unwrap_or_else(|error| refusal::directory(&error))
}

fn exists() -> Reply {
    let head = ReplyHead::new(405).with("Allow", "GET, HEAD, OPTIONS, PUT, PATCH, DELETE");
    Reply::explained(head, "there is something of this name already")
}
