//! Directory listings of servers: JSON of nginx (`autoindex_format json`), Caddy and `longhaul
//! serve`, XML of nginx (`autoindex_format xml`), and HTML index pages of Apache, nginx and others.
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
mod xml;

use std::io;
use std::time::SystemTime;

use thiserror::Error;

pub use html::HtmlLinks;
pub use json::JsonEntries;
pub use name::{MAX_NAME, check_name};
pub use xml::XmlEntries;

use super::Malformed;
use super::gridftp::parse_date;
use crate::units::Bytes;

/// An entry of a listing. Its name is not checked: see [`check_name`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedEntry {
    /// The decoded name, of any bytes.
    pub name: Vec<u8>,
    /// The kind of the entry.
    pub kind: ListedKind,
    /// The size of a file, if listed exactly.
    pub size: Option<Bytes>,
    /// The modification time, if listed with seconds.
    pub modified: Option<SystemTime>,
    /// The identifier of a directory, unique on the server, if listed (RFC 3659, section 7.5.2).
    pub unique: Option<String>,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// An entry that cannot be fetched, such as a device or a pipe.
    Other,
}

/// The reason why a listing cannot be used.
#[derive(Debug, Error)]
pub enum ListingError {
    /// The text or an entry is not of a known form, or the text is truncated.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The stored text could not be read.
    #[error("it cannot be read back: {0}")]
    Read(#[from] io::Error),
}

fn malformed(why: &str) -> ListingError {
    Malformed::new(why).into()
}

/// Parses a date and time in UTC (RFC 3339), in whole seconds.
fn parse_utc(text: &str) -> Option<SystemTime> {
    let whole = text.strip_suffix('Z')?.split('.').next()?;
    let digits: String = whole.chars().filter(|c| !matches!(c, '-' | ':' | 'T')).collect();
    parse_date(&digits)
}
