//! A server that takes ranges of one upload over several connections.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::pace::Pace;
use longhaul_core::proto::http::{Ask, FileRange, UploadRange};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::send_options::set_max_pacing_rate;

use super::body::DropBehind;
use super::progress::UploadProgress;
use super::range_worker::RangeWorker;
use super::request::PutRequest;
use super::session::UploadSession;
use crate::pacing::{PacingHandle, PacingStart, PacingThread};
use crate::send::{Reader, SourceFile};
use crate::source::http::{Client, Connection, ResolvedUrl};
use crate::source::{StreamPeer, StreamWorker};
use crate::threads::lock;

/// Where ranges go, and how.
pub(super) struct RangeTarget<'a> {
    /// The URL there, after redirects.
    pub(super) url: ResolvedUrl,
    /// What a request for a range asks.
    pub(super) kind: RangeKind<'a>,
    /// Whether the server has a part of the upload. A range that is locked there is then locked by an earlier connection of this
    /// client.
    pub(super) began: bool,
}

/// How a server is asked to take a range.
#[derive(Clone, Copy)]
pub(super) enum RangeKind<'a> {
    /// As a range of the upload that this query of the URL names; hashed on receipt where `hash` is set.
    Upload { query: &'a str, hash: bool },
    /// As a part of the file itself.
    File,
}

impl RangeTarget<'_> {
    /// Returns the target of requests for ranges where the file's is `url`.
    pub(super) fn requested(&self, url: &ResolvedUrl) -> ResolvedUrl {
        match self.kind {
            RangeKind::Upload { query, .. } => url.with_query(query),
            RangeKind::File => url.clone(),
        }
    }

    /// Returns the file's URL where ranges were redirected to `url`.
    pub(super) fn redirected(&self, url: ResolvedUrl) -> ResolvedUrl {
        match self.kind {
            RangeKind::Upload { query, .. } => url.without_query(query),
            RangeKind::File => url,
        }
    }

    /// Returns the request for a range of a file of `whole` bytes.
    pub(super) fn ask(&self, range: ByteRange, whole: Bytes) -> Ask<'static> {
        match self.kind {
            RangeKind::Upload { hash, .. } => Ask::PatchRange(UploadRange { range, whole, hash }),
            RangeKind::File => Ask::PutRange(FileRange { range, whole }),
        }
    }
}

/// What the streams of an upload have in common.
pub(super) struct RangePeer<'a> {
    pub(super) request: &'a PutRequest,
    pub(super) progress: &'a UploadProgress<'a>,
    pub(super) source: &'a Arc<SourceFile>,
    pub(super) reader: Reader,
    pub(super) client: &'a Client,
    pub(super) target: &'a RangeTarget<'a>,
    congestion: Option<&'a str>,
    pacing: &'a PacingThread,
    /// The rate that the user gave.
    rate: Option<SharedRate>,
    /// Whether the server has taken a range.
    accepts: AtomicBool,
    behind: Option<Mutex<DropBehind>>,
    shown: String,
}

impl<'a> RangePeer<'a> {
    pub(super) fn new(session: &'a UploadSession<'a>, target: &'a RangeTarget<'a>) -> Self {
        let (request, source, reader) = (session.request, session.source, session.reader);
        Self {
            request,
            progress: session.progress,
            source,
            reader,
            client: session.client,
            target,
            congestion: session.congestion.as_deref(),
            pacing: &session.pacing,
            rate: SharedRate::of(request.pace),
            accepts: AtomicBool::new(false),
            behind: DropBehind::of(source, reader).map(Mutex::new),
            shown: target.url.safe_url().to_string(),
        }
    }

    /// Returns whether a locked range can only be locked by a connection of this client.
    pub(super) fn owns_locks(&self) -> bool {
        self.target.began || self.accepts.load(Ordering::Relaxed)
    }

    /// Notes that the server has taken a range, and has the file up to `present` without a gap.
    pub(super) fn accepted(&self, present: Bytes) {
        self.accepts.store(true, Ordering::Relaxed);
        if let Some(behind) = &self.behind {
            lock(behind).follow(present, self.progress);
        }
    }

    /// Paces a connection; a rate that the user gave is for all connections together.
    pub(super) fn pace(&self, connection: &Connection) -> PacedConnection<'_> {
        let (socket, pace) = (connection.socket(), self.request.pace);
        let pacer = self.pacing.pace(socket, pace, self.congestion, PacingStart::default());
        let shared = pacer.and_then(|pacer| {
            let share = self.rate.as_ref().map(|rate| rate.share(socket)).transpose()?;
            Ok(PacedConnection { pacer, _share: share })
        });
        let paced = shared.inspect_err(|error| tracing::warn!("not paced: {error}")).unwrap_or_default();
        paced.pause();
        paced
    }
}

/// What paces a connection, until dropped.
#[derive(Default)]
pub(super) struct PacedConnection<'a> {
    /// What measures the path, where the user gave no rate.
    pacer: Option<PacingHandle>,
    _share: Option<RateShare<'a>>,
}

impl PacedConnection<'_> {
    /// Pauses the pacer: nothing is being sent.
    pub(super) fn pause(&self) {
        self.pacer.iter().for_each(PacingHandle::pause);
    }

    /// Resumes the pacer.
    pub(super) fn resume(&self) {
        self.pacer.iter().for_each(PacingHandle::resume);
    }
}

/// A rate that the open connections share evenly: each that opens or closes changes the pace of all.
struct SharedRate {
    rate: Rate,
    sockets: Mutex<Vec<Arc<TcpStream>>>,
}

impl SharedRate {
    fn of(pace: Pace) -> Option<Self> {
        let Pace::Rate(rate) = pace else { return None };
        Some(Self { rate, sockets: Mutex::default() })
    }

    /// Gives a connection its share, until that is dropped.
    fn share(&self, socket: &TcpStream) -> io::Result<RateShare<'_>> {
        let socket = Arc::new(socket.try_clone()?);
        // The new connection is the last to get its pace: the sum never exceeds the rate.
        lock(&self.sockets).push(Arc::clone(&socket));
        let share = RateShare { rate: self, socket };
        self.divide()?;
        Ok(share)
    }

    fn divide(&self) -> io::Result<()> {
        let sockets = lock(&self.sockets);
        let share = self.rate.as_bits_per_sec() / sockets.len().max(1) as u64;
        // The kernel paces by whole bytes.
        let share = Rate::bits_per_sec(share.max(8));
        sockets.iter().try_for_each(|socket| set_max_pacing_rate(socket, share))
    }
}

/// A connection's share of a rate.
struct RateShare<'a> {
    rate: &'a SharedRate,
    socket: Arc<TcpStream>,
}

impl Drop for RateShare<'_> {
    fn drop(&mut self) {
        lock(&self.rate.sockets).retain(|socket| !Arc::ptr_eq(socket, &self.socket));
        // Where the kernel refuses, the others keep their pace.
        let _ = self.rate.divide();
    }
}

impl StreamPeer for RangePeer<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker + '_> {
        Box::new(RangeWorker::new(self))
    }

    fn receives(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use longhaul_sys::tcp_info;

    use super::*;

    #[test]
    fn connections_share_the_rate_whenever_they_open() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sockets: Vec<_> = std::iter::repeat_with(connect).take(16).collect();
        let whole = Rate::bytes_per_sec(16_000_000);
        let shared = SharedRate::of(Pace::Rate(whole)).unwrap();
        let paces = |open: std::ops::Range<usize>| -> Vec<u64> {
            let info = sockets[open].iter().map(|socket| tcp_info::read(socket).unwrap());
            info.map(|info| info.tcpi_max_pacing_rate().unwrap()).collect()
        };
        let mut shares = Vec::new();
        for open in [1, 2, 4, 8, 16] {
            shares.extend(sockets[shares.len()..open].iter().map(|socket| shared.share(socket).unwrap()));
            assert_eq!(paces(0..open), vec![16_000_000 / open as u64; open]);
        }
        shares.truncate(4);
        assert_eq!(paces(0..4), [4_000_000; 4]);
    }
}
