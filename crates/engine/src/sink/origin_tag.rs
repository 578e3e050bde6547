//! The entity tag that a file has on its server, kept with the file as an extended attribute.
//!
//! It tells whether the server's file has changed where the server does not tell when.

use std::fs::File;
use std::io;
use std::path::Path;

use longhaul_core::proto::http::ETag;
use rustix::fs::{XattrFlags, fsetxattr, getxattr};

const NAME: &str = "user.longhaul.etag";
/// A longer tag is not kept.
const LONGEST: usize = 1024;

/// Reads the tag of the file at `path`; `None` where it has none, or the file system keeps none.
pub fn read(path: &Path) -> Option<ETag> {
    let mut value = [0; LONGEST];
    let length = getxattr(path, NAME, &mut value[..]).ok()?;
    ETag::parse(std::str::from_utf8(value.get(..length)?).ok()?)
}

/// Keeps the tag of an open file.
///
/// # Errors
/// What the kernel says; `EOPNOTSUPP` from file systems without extended attributes.
pub(crate) fn write(file: &File, tag: &ETag) -> io::Result<()> {
    let text = tag.to_string();
    if text.len() > LONGEST {
        return Ok(());
    }
    Ok(fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty())?)
}
