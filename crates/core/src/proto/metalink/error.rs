//! Errors in a Metalink document.

use thiserror::Error;

use super::MAX_DOCUMENT;

/// The reason why a Metalink document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetalinkError {
    /// The document is larger than [`MAX_DOCUMENT`].
    #[error("the metalink is larger than {MAX_DOCUMENT}")]
    TooLarge,
    /// The document is neither in UTF-8 nor declared as Latin-1.
    #[error("the metalink is not in UTF-8 (byte {0}), and does not declare ISO-8859-1")]
    Encoding(usize),
    /// The document is not well-formed XML.
    #[error("the metalink is not well-formed XML at byte {at}: {why}")]
    Syntax {
        /// The offset of the error in bytes.
        at: u64,
        /// The error.
        why: String,
    },
    /// The document ends before the end of its root element.
    #[error("the metalink is cut off")]
    Truncated,
    /// The document has a document type declaration, which could define entities.
    #[error("the metalink has a document type declaration (<!DOCTYPE>), which is not accepted")]
    Doctype,
    /// The root is not a metalink element.
    #[error(
        "this is not a Metalink document: its root is neither <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"> (RFC 5854) nor that of Metalink 3"
    )]
    NotMetalink,
    /// The document contains no file.
    #[error("the metalink names no file")]
    NoFiles,
    /// The number of items of one kind exceeds its limit.
    #[error("the metalink has more than {limit} {what}")]
    TooMany {
        /// The kind of the items.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A file's name is missing, or leaves the target directory.
    #[error("the metalink's file name '{}' is not a relative path of plain names", .0.escape_debug())]
    Name(String),
    /// Two files have the same name.
    #[error("the metalink has two files named '{0}'")]
    RepeatedName(String),
    /// A value is missing, repeated or out of range.
    #[error("the metalink's <{element}> of '{file}' is wrong: {why}")]
    Value {
        /// The file's name.
        file: String,
        /// The element.
        element: &'static str,
        /// The error in the value.
        why: String,
    },
}
