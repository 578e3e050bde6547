//! Where bytes come from: one trait, and a module for each protocol.
//!
//! ```text
//!  Source::describe -> Description: size, identity, name, divisible, and the range that is already under way
//!  Source::worker   -> StreamWorker::work(stream): lease, request, receive into the stream's segments, lease, ..
//! ```
//!
//! A worker owns its connection; a source owns what its workers share: the address, refusals, the identity of the file.

pub(crate) mod gridftp;
pub mod http;
pub mod listing;

use std::time::SystemTime;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::Event;
use longhaul_core::identity::Identity;
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rtt};
use url::Url;

use crate::cancel::Cancel;
use crate::path_memory::{Endpoint, KnownPath};
use crate::transfer::Stream;
use crate::transfer::error::SourceError;

/// Returns whether URLs of this scheme can be fetched.
pub fn is_known_scheme(scheme: &str) -> bool {
    matches!(scheme, "http" | "https" | "ftp" | "ftps" | "gsiftp")
}

/// The other end of streams: what makes their workers.
pub(crate) trait StreamPeer: Send + Sync {
    /// Returns the address without secrets, for messages.
    fn shown(&self) -> &str;

    /// Makes what one stream moves bytes with.
    fn worker(&self) -> Box<dyn StreamWorker + '_>;

    /// Returns whether one worker moves bytes over all of the peer's connections, as in GridFTP's MODE E: then their number is the
    /// number of streams, and there is one worker.
    fn multiplexes(&self) -> bool {
        false
    }

    /// Returns whether bytes go to it.
    fn receives(&self) -> bool {
        false
    }
}

/// One place that a file can be fetched from.
pub(crate) trait Source: StreamPeer {
    /// Asks what the file is, and begins to fetch: what is under way is left to the first worker.
    ///
    /// # Errors
    /// [`SourceError`] after the retries that the user allows.
    fn describe(&self, ask: &Ask<'_>) -> Result<Description, SourceError>;

    /// Fetches a small part of the described file over a connection of its own, to compare it with bytes that are there.
    ///
    /// # Errors
    /// [`SourceError`]; one of [`Cause::OtherFile`](crate::transfer::error::Cause::OtherFile) where the file has changed.
    fn sample(&self, part: ByteRange, cancel: &Cancel) -> Result<Vec<u8>, SourceError>;

    /// Fetches the digests of the described file's pieces, where the source publishes them.
    ///
    /// # Errors
    /// [`SourceError`] where they are announced and cannot be fetched or understood.
    fn published_pieces(&self, cancel: &Cancel) -> Result<Option<Pieces>, SourceError>;

    /// Asks for the digest of the described file by [`Description::digest_on_request`]; the source may read all of the file for it.
    ///
    /// # Errors
    /// [`SourceError`]; one of [`Cause::OtherFile`](crate::transfer::error::Cause::OtherFile) where the file has changed.
    fn digest(&self, _algorithm: Algorithm, _cancel: &Cancel) -> Result<Option<Checksum>, SourceError> {
        Ok(None)
    }

    /// Closes what was begun ahead for more than so many streams.
    fn expect_streams(&self, _streams: usize) {}

    /// Closes what [`Self::describe`] has begun and no worker has taken.
    fn abandon(&self);
}

/// The protocol's side of one stream.
pub(crate) trait StreamWorker {
    /// Leases ranges and moves their bytes until nothing is left to lease, or the connection fails.
    ///
    /// The connection is closed on return; the caller decides about another try.
    ///
    /// # Errors
    /// [`SourceError`] with the class and whether to try again.
    fn work(&mut self, stream: &mut Stream<'_>) -> Result<(), SourceError>;

    /// Returns whether a break loses what was delivered before, so that it is no progress.
    fn restarts(&self) -> bool {
        false
    }

    /// Ends the worker's part in the transfer: takes back what has not been shown to be of the described file.
    fn leave(&mut self, _stream: &mut Stream<'_>) {}
}

/// Names the server and the service of a URL: logins are for one origin only.
///
/// [`Url::origin`] knows HTTP and FTP, and takes each gsiftp:// URL for an origin of its own.
pub(crate) fn origin(url: &Url) -> (String, String, u16) {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    (url.scheme().to_owned(), host, default_port(url).unwrap_or_default())
}

/// Returns the port of a URL, or the usual one of its scheme.
pub fn default_port(url: &Url) -> Option<u16> {
    /// The port of GridFTP (GFD.20).
    const GRIDFTP: u16 = 2811;
    /// The port of FTP: TLS is requested over it (RFC 4217); the one for TLS from the first byte on is not used.
    const FTPS: u16 = 21;
    url.port_or_known_default().or(match url.scheme() {
        "gsiftp" => Some(GRIDFTP),
        "ftps" => Some(FTPS),
        _ => None,
    })
}

/// What is asked of a file before its ranges are scheduled.
pub(crate) struct Ask<'a> {
    /// What an earlier run has left; `None` for a file that is begun.
    pub(crate) resume: Option<Resume>,
    /// How many bytes to ask for at first; `None` lets the source choose.
    pub(crate) at_most: Option<Bytes>,
    /// How much is left to fetch, where that is known.
    pub(crate) left: Option<Bytes>,
    /// Whether to wait and try again where the server is busy.
    pub(crate) waits: bool,
    pub(crate) cancel: &'a Cancel,
    pub(crate) emit: &'a dyn Fn(&Event),
}

/// The file that a partial file is of, as far as one source knows it.
#[derive(Debug, Clone)]
pub(crate) struct Resume {
    /// The first range that is missing; the last byte where nothing is.
    pub(crate) gap: ByteRange,
    /// What identified the file.
    pub(crate) identity: Identity,
}

/// A file as a source describes it.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) size: Option<Bytes>,
    /// What every answer with bytes of this file shares; `None` where ranges of several answers must not be combined.
    pub(crate) identity: Option<Identity>,
    /// When the file was modified last.
    pub(crate) modified: Option<SystemTime>,
    /// The file's name as the source gives it, safe to be used in a directory.
    pub(crate) name: Option<String>,
    /// Whether several streams may share the file.
    pub(crate) divisible: bool,
    /// The range that is under way on the first connection.
    pub(crate) first: ByteRange,
    /// Whether a later run can go on from where this one ends: the source gives ranges, of a file that it identifies.
    pub(crate) resumable: bool,
    /// Whether the answer holds the whole file although a part was asked for.
    pub(crate) whole: bool,
    /// What was sent, for messages: media type and size.
    pub(crate) shown_content: String,
    /// The RTT of the first connection.
    pub(crate) rtt: Rtt,
    /// What a stream can have in flight before any byte has arrived.
    pub(crate) first_window: Bytes,
    /// Whether the server paces what it sends, so that one stream should have it all.
    pub(crate) paced: bool,
    /// The server, as paths are remembered.
    pub(crate) endpoint: Option<Endpoint>,
    /// What an earlier transfer found the path to be.
    pub(crate) known: Option<KnownPath>,
    /// What was remembered of a path and has proved untrue, as it is to be kept.
    pub(crate) corrected: Option<KnownPath>,
    /// Other places of the same file that the source names (RFC 6249).
    pub(crate) duplicates: Vec<Url>,
    /// The file's digest that the source names.
    pub(crate) digest: Option<Checksum>,
    /// The algorithm by which the source computes a digest where it is asked for one.
    pub(crate) digest_on_request: Option<Algorithm>,
}

impl Description {
    /// Returns whether parts of the file from several answers may be combined, be they of one source or of several.
    pub(crate) fn combines_answers(&self) -> bool {
        !self.whole && self.size.is_some() && self.identity.is_some()
    }

    /// Returns whether the source names other places of the file, and a digest that proves them (RFC 6249, section 6).
    pub(crate) fn names_proved_duplicates(&self) -> bool {
        !self.duplicates.is_empty() && self.digest.is_some()
    }
}
