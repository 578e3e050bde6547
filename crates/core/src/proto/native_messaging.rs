//! Native messaging: the messages between a browser extension and a native program over stdin and
//! stdout.
//!
//! A message is its length as 32 bits in the machine's byte order, followed by JSON of that length.
//! A program may send at most 1 MiB; the same limit is applied to the extension's messages,
//! although browsers allow more.
//!
//! ```
//! use longhaul_core::proto::native_messaging::{HostRequest, HostRequestKind, encode, message_length};
//!
//! let bytes = encode(br#"{"id":1,"type":"hello"}"#)?;
//! let (prefix, body) = bytes.split_first_chunk().expect("four bytes of length");
//! assert_eq!(message_length(*prefix)?, body.len());
//! assert_eq!(HostRequest::parse(body)?.kind, HostRequestKind::Hello);
//! # Ok::<(), longhaul_core::proto::Malformed>(())
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Malformed;
/// The longest message in bytes: the browsers' limit for messages of a program (the WebExtensions
/// documentation of native messaging).
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// A request from the extension.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct HostRequest {
    /// The number of the request, repeated in the reply.
    pub id: u64,
    /// The kind of the request, with its arguments.
    #[serde(flatten)]
    pub kind: HostRequestKind,
}

/// The kinds of requests.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum HostRequestKind {
    /// Requests the program's version.
    Hello,
    /// Opens a connection to the server of a link for which a transfer may follow.
    Connect {
        /// The URL of the server's root.
        url: String,
    },
    /// Starts a transfer if its server answers; otherwise no transfer is added.
    Offer {
        /// The download.
        request: LinkRequest,
        /// The time within which the browser must have the reply, in seconds.
        seconds: u8,
    },
    /// Adds a transfer.
    Add {
        /// The download.
        request: LinkRequest,
    },
    /// Lists the latest transfers.
    List {
        /// The largest number of transfers.
        limit: u32,
    },
    /// Pauses a transfer.
    Pause {
        /// The number of the transfer.
        transfer: u64,
    },
    /// Resumes a transfer.
    Resume {
        /// The number of the transfer.
        transfer: u64,
    },
    /// Cancels a transfer.
    Cancel {
        /// The number of the transfer.
        transfer: u64,
    },
    /// Restarts a failed transfer.
    Retry {
        /// The number of the transfer.
        transfer: u64,
    },
    /// Removes an ended transfer from the list.
    Remove {
        /// The number of the transfer.
        transfer: u64,
        /// Whether its partial file is deleted.
        #[serde(default)]
        files: bool,
    },
    /// Opens the folder of a transfer's file.
    OpenFolder {
        /// The number of the transfer.
        transfer: u64,
    },
    /// Continues a transfer from a new link.
    Refresh {
        /// The number of the transfer.
        transfer: u64,
        /// The new link.
        request: LinkRequest,
    },
    /// Requests an event at each change of a transfer.
    Watch,
}

/// A link to download, in the format of the agent's API.
///
/// A browser needs no more of that: no uploads, and no choice of directories or other options.
/// Unknown fields are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {
    /// The link.
    pub urls: Vec<String>,
    /// The file's name, without a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The size in bytes that the browser was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Request headers.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The value of the Cookie header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookies: Option<String>,
    /// The browser's User-Agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// The value of the Referer header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub referrer: Option<String>,
    /// The page with the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_url: Option<String>,
}

impl HostRequest {
    /// Parses the JSON of a message.
    ///
    /// # Errors
    /// [`Malformed`] for any other message.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let unknown = |error| Malformed::new(format!("not a request of the Longhaul extension: {error}"));
        serde_json::from_slice(message).map_err(unknown)
    }
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostReply {
    id: u64,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<HostReplyError>,
}

/// The reason why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostReplyError {
    /// The reason as a keyword for programs.
    pub code: String,
    /// The reason as a sentence for users.
    pub message: String,
}

impl HostReply {
    /// Creates the reply to request `id`, with a result or an error.
    pub fn new(id: u64, result: Result<Value, HostReplyError>) -> Self {
        match result {
            Ok(result) => Self { id, ok: true, result: Some(result), error: None },
            Err(error) => Self { id, ok: false, result: None, error: Some(error) },
        }
    }
}

/// Decodes the length of the message that follows.
///
/// # Errors
/// [`Malformed`] if the message is longer than [`MAX_MESSAGE`].
pub fn message_length(prefix: [u8; 4]) -> Result<usize, Malformed> {
    let length = usize::try_from(u32::from_ne_bytes(prefix)).unwrap_or(usize::MAX);
    if length > MAX_MESSAGE { Err(too_long(length)) } else { Ok(length) }
}

/// Encodes a message with its length.
///
/// # Errors
/// [`Malformed`] if the message is longer than [`MAX_MESSAGE`].
pub fn encode(json: &[u8]) -> Result<Vec<u8>, Malformed> {
    let length = u32::try_from(json.len()).ok().filter(|_| json.len() <= MAX_MESSAGE);
    let length = length.ok_or_else(|| too_long(json.len()))?;
    Ok([&length.to_ne_bytes(), json].concat())
}

fn too_long(length: usize) -> Malformed {
    Malformed::new(format!("a native message of {length} bytes: at most {MAX_MESSAGE} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_over_one_mebibyte_is_refused_and_a_reply_has_a_result_or_an_error() {
        let over = u32::try_from(MAX_MESSAGE + 1).unwrap();
        assert!(message_length(over.to_ne_bytes()).is_err());
        assert!(encode(&vec![b' '; MAX_MESSAGE + 1]).is_err());
        assert_eq!(encode(&vec![b' '; MAX_MESSAGE]).unwrap().len(), MAX_MESSAGE + 4);
        let done = serde_json::to_string(&HostReply::new(1, Ok(Value::Null))).unwrap();
        assert_eq!(done, r#"{"id":1,"ok":true,"result":null}"#);
        let error = HostReplyError { code: "refused".to_owned(), message: "404".to_owned() };
        let refused = serde_json::to_string(&HostReply::new(2, Err(error))).unwrap();
        assert_eq!(refused, r#"{"id":2,"ok":false,"error":{"code":"refused","message":"404"}}"#);
    }

    #[test]
    fn request_names_its_transfer_and_malformed_ones_are_refused() {
        let request = HostRequest::parse(br#"{"id":7,"type":"open-folder","transfer":3}"#).unwrap();
        assert_eq!(request, HostRequest { id: 7, kind: HostRequestKind::OpenFolder { transfer: 3 } });
        let malformed =
            r#"|{|[]|{}|{"id":1}|{"id":-1,"type":"hello"}|{"id":1,"type":"run"}|{"type":"hello"}"#;
        for bad in malformed.split('|').chain([r#"{"id":1,"type":"pause","transfer":"1"}"#]) {
            assert!(HostRequest::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
