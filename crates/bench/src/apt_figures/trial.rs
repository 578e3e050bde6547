//! One simulated transfer on the paper's path, and a runner for many of them on all cores.

use std::fmt;
use std::iter;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::tune::apt::{self, Apt};
use longhaul_core::tune::streams::{StreamTuner, StreamTunerStart};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_lab::model::session::{DownloadSession, FixedCount, SessionRecord, Tuner, run};
use longhaul_lab::model::tcp::{CongestionAlgorithm, Network, Tcp};
use longhaul_lab::{PathSpec, QueueLimit};

/// Table 1 of the paper, which does not name the TCP variant.
pub(crate) const RATE: Rate = Rate::bits_per_sec(100_000_000);
pub(crate) const QUEUE: QueueLimit = QueueLimit::Packets(100);
const TCP: Tcp = Tcp {
    algorithm: CongestionAlgorithm::Reno,
    payload: Bytes::new(1460),
    segments: 1,
    buffer: Bytes::kib(64),
    initial: 2,
};
/// The rate left for payload, in bits per second.
pub(crate) const LINE: f64 = 100e6 * 1460.0 / 1500.0;

/// The method that chooses the number of streams.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Method {
    /// A fixed number.
    Fixed(usize),
    /// A fixed number, with the file in chunks like APT's.
    FixedInChunks(usize),
    /// GridFTP-APT.
    Apt(Controls),
    /// GridFTP-APT with new connections for each chunk; the paper does not specify this.
    AptReconnecting(Controls),
    /// `--streams auto`.
    Longhaul,
}

/// APT's control parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Controls {
    pub(crate) alpha: f64,
    pub(crate) delta: Duration,
    pub(crate) n0: usize,
}

/// The parameters of the paper's table 1.
pub(crate) const PUBLISHED: Controls = Controls { alpha: 2.0, delta: Duration::from_secs(3), n0: 4 };

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(streams) => write!(f, "N = {streams}"),
            Self::FixedInChunks(streams) => write!(f, "N = {streams}, in chunks"),
            Self::Apt(_) => f.pad("APT"),
            Self::AptReconnecting(_) => f.pad("APT, reconnecting"),
            Self::Longhaul => f.pad("Longhaul"),
        }
    }
}

/// Returns the path of the paper with a one-way delay tau of `delay`.
pub(crate) fn paper_path(delay: Duration, seed: u64) -> PathSpec {
    let (rate, rtt, queue) = (Some(RATE), Rtt::new(delay * 2), Some(QUEUE));
    PathSpec { rate, rtt, queue, seed, ..PathSpec::default() }
}

/// Concurrent downloads of files of one size.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Trial {
    pub(crate) path: PathSpec,
    pub(crate) method: Method,
    pub(crate) file: Bytes,
    /// Start of each session.
    pub(crate) begins: Vec<Duration>,
    /// Maximum duration.
    pub(crate) until: Duration,
}

/// The result of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SessionResult {
    /// File size over time in bits per second; 0 for an incomplete session.
    pub(crate) rate: f64,
    /// Whether the tuner requested the maximum of connections, which the paper does not limit.
    pub(crate) is_bounded: bool,
}

impl SessionResult {
    pub(crate) fn of(record: &SessionRecord, file: Bytes) -> Self {
        let tried = record.chunks.iter().map(|chunk| chunk.streams);
        let seen = record.seconds.iter().map(|second| second.streams);
        Self {
            rate: record.rate(file).map_or(0.0, |rate| rate.as_bits_per_sec() as f64),
            is_bounded: tried.chain(seen).any(|streams| streams >= MAX_STREAMS),
        }
    }
}

impl Trial {
    /// Creates a trial with a single file.
    pub(crate) fn alone(path: PathSpec, method: Method, file: Bytes) -> Self {
        /// A tenth of the goodput of one stream with 64 KB at 50 ms one-way.
        const MIN_GOODPUT: Rate = Rate::bits_per_sec(500_000);
        Self { path, method, file, begins: vec![Duration::ZERO], until: MIN_GOODPUT.time_for(file) }
    }

    /// Runs the trial; returns the record of each session.
    pub(crate) fn run(&self) -> Vec<SessionRecord> {
        let mut network = Network::new(&self.path, TCP);
        let reconnects = matches!(self.method, Method::AptReconnecting(_));
        let session =
            |&begins: &Duration| DownloadSession { begins, file: self.file, tuner: self.tuner(), reconnects };
        run(&mut network, self.begins.iter().map(session).collect(), self.until)
    }

    /// Runs the trial; returns the result of the first session.
    pub(crate) fn reached(&self) -> SessionResult {
        let records = self.run();
        records
            .first()
            .map_or(SessionResult { rate: 0.0, is_bounded: false }, |own| SessionResult::of(own, self.file))
    }

    fn tuner(&self) -> Box<dyn Tuner> {
        let rtt = self.path.rtt;
        match self.method {
            Method::Fixed(streams) => Box::new(FixedCount { streams, chunk: None }),
            Method::FixedInChunks(streams) => {
                let windows = Rate::over(TCP.buffer * streams as u64, rtt.get());
                let chunk = Some(windows.min(RATE).bytes_in(PUBLISHED.delta));
                Box::new(FixedCount { streams, chunk })
            }
            Method::Apt(Controls { alpha, delta, n0 })
            | Method::AptReconnecting(Controls { alpha, delta, n0 }) => {
                let window = TCP.buffer;
                Box::new(Apt::new(apt::Parameters { n0, alpha, delta, window, rtt, most: MAX_STREAMS }))
            }
            Method::Longhaul => Box::new(StreamTuner::new(&StreamTunerStart {
                rtt,
                left: self.file,
                most: MAX_STREAMS,
                remembered: None,
                bound: None,
            })),
        }
    }
}

/// Applies `work` to all items on all cores; returns results in the items' order.
pub(crate) fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = Mutex::new(items.iter().enumerate());
    let share = || -> Vec<(usize, R)> {
        let taken = iter::from_fn(|| next.lock().ok()?.next());
        taken.map(|(index, item)| (index, work(item))).collect()
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(share)).collect();
        let joined =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.flatten().collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
