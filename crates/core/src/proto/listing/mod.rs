//! Listings of directories, as servers send them: JSON of nginx (`autoindex_format json`) and of `longhaul serve`, and the HTML index
//! pages of Apache and nginx.
//!
//! ```
//! use longhaul_core::proto::listing::{JsonEntries, ListedKind};
//!
//! let text = br#"[{ "name": "a.tar", "type": "file", "mtime": "Sun, 06 Nov 1994 08:49:37 GMT", "size": 7 }]"#;
//! let entries: Result<Vec<_>, _> = JsonEntries::new(&text[..]).collect();
//! assert_eq!(entries.unwrap()[0].kind, ListedKind::File);
//! ```

mod html;
mod json;
mod name;

use std::io;
use std::time::SystemTime;

use thiserror::Error;

pub use html::HtmlLinks;
pub use json::JsonEntries;
pub use name::{MAX_NAME, NameError, check_name};

use crate::units::Bytes;

/// An entry of a directory as a server names it. Its name is not checked: see [`check_name`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// The name, decoded; it may be any bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: ListedKind,
    /// The size of a file, where the listing has it to the byte.
    pub size: Option<Bytes>,
    /// The time of modification, where the listing has it to the second.
    pub modified: Option<SystemTime>,
    /// What tells a directory from every other of the server, where the listing has it (RFC 3659, section 7.5.2).
    pub unique: Option<String>,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Something that cannot be fetched, as a device or a pipe.
    Other,
}

/// Why a listing cannot be used.
#[derive(Debug, Error)]
pub enum ListingError {
    /// It is neither an array of entries nor an index page, or it is cut off.
    #[error("{0}")]
    Malformed(String),
    /// It could not be read back.
    #[error("it cannot be read back: {0}")]
    Read(#[from] io::Error),
}
