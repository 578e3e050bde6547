//! Sources of bytes: a trait, and a module for each protocol.
//!
//! ```text
//!  Source::describe -> Description: size, identity, name, divisible, and the range requested first
//!  Source::worker   -> StreamWorker::work(stream): lease, request, receive into the stream's segments, lease, ..
//! ```
//!
//! A worker owns its connection; a source owns what its workers share: the address, refusals, the
//! identity of the file.

pub(crate) mod gridftp;
pub mod http;
pub mod listing;

use std::net::TcpStream;
use std::time::{Duration, SystemTime};

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::Event;
use longhaul_core::failure::Failure;
use longhaul_core::identity::Identity;
use longhaul_core::pace::Pace;
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;
use url::Url;

use crate::cancel::Cancel;
use crate::path_memory::{Endpoint, KnownPath};
use crate::transfer::{Direction, Receiving, Stream};

/// Returns whether URLs of this scheme can be fetched.
pub fn is_known_scheme(scheme: &str) -> bool {
    matches!(scheme, "http" | "https" | "ftp" | "ftps" | "gsiftp")
}

/// The peer of streams, which creates their workers.
pub(crate) trait StreamPeer<D: Direction = Receiving>: Send + Sync {
    /// Returns the address without secrets, for messages.
    fn shown(&self) -> &str;

    /// Creates the worker of one stream.
    fn worker(&self) -> Box<dyn StreamWorker<D> + '_>;

    /// Returns whether one worker moves bytes over all of the peer's connections, as in GridFTP's
    /// MODE E. The number of streams then is the number of connections.
    fn multiplexes(&self) -> bool {
        false
    }

    /// Returns whether one stream must move all bytes, because the peer sends them in one answer.
    fn takes_one_stream(&self) -> bool {
        false
    }
}

/// A place from which a file can be fetched.
pub(crate) trait Source: StreamPeer {
    /// Describes the file, and starts to fetch it: the first worker takes over the open request.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    fn describe(&self, request: &DescribeRequest<'_>) -> Result<Description, Failure>;

    /// Fetches a small range of the described file over a separate connection, to compare it with
    /// existing bytes.
    ///
    /// # Errors
    /// [`Failure`]; with [`Cause::OtherFile`](longhaul_core::failure::Cause::OtherFile) if the file
    /// has changed.
    fn sample(&self, part: ByteRange, cancel: &Cancel) -> Result<Vec<u8>, Failure>;

    /// Fetches the piece digests of the described file, if the source publishes them.
    ///
    /// # Errors
    /// [`Failure`] if digests are announced but cannot be fetched or parsed.
    fn published_pieces(&self, cancel: &Cancel) -> Result<Option<Pieces>, Failure>;

    /// Requests the digest of the described file by [`Published::digest_on_request`]; the source
    /// may read the whole file for it.
    ///
    /// # Errors
    /// [`Failure`]; with [`Cause::OtherFile`](longhaul_core::failure::Cause::OtherFile) if the file
    /// has changed.
    fn digest(&self, _algorithm: Algorithm, _cancel: &Cancel) -> Result<Option<Checksum>, Failure> {
        Ok(None)
    }

    /// Closes connections opened ahead for more than this number of streams.
    fn expect_streams(&self, _streams: usize) {}

    /// Closes connections opened by [`Self::describe`] and not taken by a worker.
    fn abandon(&self);
}

/// Moves the bytes of one stream by the protocol.
pub(crate) trait StreamWorker<D: Direction = Receiving> {
    /// Leases ranges and moves their bytes until nothing is left to lease, or the connection fails.
    ///
    /// The connection is closed on return; the caller decides about a retry.
    ///
    /// # Errors
    /// [`Failure`] with the kind, and whether to retry.
    fn work(&mut self, stream: &mut Stream<'_, D>) -> Result<(), Failure>;

    /// Returns whether a broken connection discards earlier bytes, which then do not count as
    /// progress.
    fn restarts(&self) -> bool {
        false
    }

    /// Makes the next request one for the whole file, of which the missing ranges are kept, if the
    /// server fails at ranges; `is_last` tells that the stream otherwise gives up. Returns whether
    /// it did.
    fn falls_back(&mut self, _is_last: bool) -> bool {
        false
    }

    /// Ends the worker's part in the transfer: takes back bytes that are not proved to be of the
    /// described file.
    fn leave(&mut self, _stream: &mut Stream<'_, D>) {}
}

/// From this RTT on, a window or send buffer may limit a stream, so that several may pay.
pub(crate) const MIN_RTT_OF_SEVERAL: Rtt = Rtt::new(Duration::from_millis(5));

/// Returns whether several streams may pay on a path of this RTT: it is long, or an earlier
/// transfer used several.
pub(crate) fn may_pay_several(rtt: Rtt, known: Option<&KnownPath>) -> bool {
    let several = |known: &KnownPath| known.still_holds(rtt).is_some_and(|path| path.streams > 1);
    rtt >= MIN_RTT_OF_SEVERAL || known.is_some_and(several)
}

/// Returns the bytes that a stream can have in flight (W): its receive buffer, or the initial
/// window.
pub(crate) fn first_window(recv_buffer: Option<Bytes>, socket: &TcpStream) -> Bytes {
    /// The initial window if the kernel does not report it (`tcp_rmem[1]` / 2).
    const UNREPORTED: Bytes = Bytes::kib(64);
    let kernels = || tcp_info::read(socket).ok().and_then(|tcp| tcp.rcv_wnd());
    recv_buffer.or_else(kernels).unwrap_or(UNREPORTED)
}

/// Identifies the server and service of a URL: logins are for one origin only.
///
/// [`Url::origin`] supports HTTP and FTP, but treats each gsiftp:// URL as a separate origin.
pub(crate) fn origin(url: &Url) -> (String, String, u16) {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    (url.scheme().to_owned(), host, default_port(url).unwrap_or_default())
}

/// Returns the port of a URL, or the default port of its scheme.
pub fn default_port(url: &Url) -> Option<u16> {
    /// The port of GridFTP (GFD.20).
    const GRIDFTP: u16 = 2811;
    /// The port of FTP, over which TLS is requested (RFC 4217); the port of implicit TLS is not
    /// used.
    const FTPS: u16 = 21;
    url.port_or_known_default().or(match url.scheme() {
        "gsiftp" => Some(GRIDFTP),
        "ftps" => Some(FTPS),
        _ => None,
    })
}

/// The parameters of a request for a file's description.
pub(crate) struct DescribeRequest<'a> {
    /// The state of an earlier run; `None` for a new file.
    pub(crate) resume: Option<Resume>,
    /// The maximum length of the first request; `None` lets the source choose.
    pub(crate) at_most: Option<Bytes>,
    /// The bytes left to fetch, if known.
    pub(crate) left: Option<Bytes>,
    /// Whether to wait and retry if the server is busy.
    pub(crate) waits: bool,
    /// Whether to request the whole file if the server fails at ranges.
    pub(crate) falls_back: bool,
    pub(crate) cancel: &'a Cancel,
    pub(crate) emit: &'a dyn Fn(&Event),
}

/// The identity of a partial file, as known for one source.
#[derive(Debug, Clone)]
pub(crate) struct Resume {
    /// The first missing range; the last byte if none is missing.
    pub(crate) gap: ByteRange,
    /// The identity of the file.
    pub(crate) identity: Identity,
}

/// A file as a source describes it.
#[derive(Debug, Clone)]
pub(crate) struct Description {
    pub(crate) file: FileDescription,
    pub(crate) ranges: RangeAccess,
    pub(crate) path: ServerPath,
    pub(crate) published: Published,
}

/// What names and identifies the file.
#[derive(Debug, Clone)]
pub(crate) struct FileDescription {
    pub(crate) size: Option<Bytes>,
    /// The identity shared by all answers with bytes of this file; `None` if ranges of several
    /// answers must not be combined.
    pub(crate) identity: Option<Identity>,
    /// The server's tag or date of the file, which shows a later run that the file is the same;
    /// also a weak tag, and of a file of unknown size whose end is marked.
    pub(crate) state: Option<String>,
    /// The modification time.
    pub(crate) modified: Option<SystemTime>,
    /// The file's name from the source, safe for use in a directory.
    pub(crate) name: Option<String>,
    /// Whether the URL redirects to that of a directory: itself with a slash.
    pub(crate) is_directory: bool,
    /// The media type and size of the answer, for messages.
    pub(crate) shown_content: String,
}

/// Which ranges of the file can be requested.
#[derive(Debug, Clone)]
pub(crate) struct RangeAccess {
    /// The range requested on the first connection.
    pub(crate) first: ByteRange,
    /// Whether several streams may share the file.
    pub(crate) divisible: bool,
    /// Whether a later run can resume: the source supports ranges, and identifies the file.
    pub(crate) resumable: bool,
    /// Whether the answer contains the whole file although a range was requested.
    pub(crate) whole: bool,
}

/// The path to the server, as measured now and by earlier transfers.
#[derive(Debug, Clone)]
pub(crate) struct ServerPath {
    /// The RTT of the first connection.
    pub(crate) rtt: Rtt,
    /// The bytes that a stream can have in flight before any byte has arrived.
    pub(crate) first_window: Bytes,
    /// The pace in force, if the server paces its sending, so that one stream should fetch all.
    pub(crate) pace: Option<Pace>,
    /// The server's key in the path memory.
    pub(crate) endpoint: Option<Endpoint>,
    /// The stored measurements of an earlier transfer.
    pub(crate) known: Option<KnownPath>,
    /// A corrected entry for the path memory, if the stored one was wrong.
    pub(crate) corrected: Option<KnownPath>,
}

/// What the source publishes of the file's content.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// Mirrors of the file (RFC 6249).
    pub(crate) duplicates: Vec<Url>,
    /// The file's digest.
    pub(crate) digest: Option<Checksum>,
    /// The algorithm of digests that the source computes on request.
    pub(crate) digest_on_request: Option<Algorithm>,
}

impl Description {
    /// Returns whether ranges from several answers, of one or several sources, may be combined.
    pub(crate) fn combines_answers(&self) -> bool {
        !self.ranges.whole && self.file.size.is_some() && self.file.identity.is_some()
    }

    /// Returns whether the source states mirrors of the file, and a digest that proves their bytes
    /// (RFC 6249, section 6).
    pub(crate) fn names_proved_duplicates(&self) -> bool {
        !self.published.duplicates.is_empty() && self.published.digest.is_some()
    }
}
