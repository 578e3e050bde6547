//! Captured packets of TCP connections, read into what limited each: pcap and pcapng, of either side.
//!
//! ```no_run
//! use longhaul_scope::capture::{Capture, Keep};
//!
//! let capture = Capture::load("curl.pcap".as_ref(), Keep::Diagnosis)?;
//! for flow in &capture.flows {
//!     println!("{} -> {}: {:?}", flow.from, flow.to, flow.diagnosis);
//! }
//! # Ok::<(), longhaul_core::failure::Failure>(())
//! ```

mod announced_window;
mod arrivals;
mod clock;
mod direction;
mod file;
mod flow;
mod packet;
mod record;
mod response_times;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};

pub use flow::{CaptureCoverage, Flow, Unexplained};

use clock::CaptureClock;
use flow::CapturedConnection;
use packet::{Link, Segment};

/// The analysed connections of a capture.
#[derive(Debug, Clone, PartialEq)]
pub struct Capture {
    /// The connections with data, the largest first.
    pub flows: Vec<Flow>,
    /// Packets read.
    pub packets: u64,
    /// Packets that are not TCP or are truncated within their headers.
    pub others: u64,
    /// The damage of the file, in a phrase; packets before the damage are kept.
    pub damage: Option<String>,
}

/// What is kept of each connection of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What limited it.
    Diagnosis,
    /// Its readings too, of which [`Flow::record`] is made.
    Readings,
}

/// Maximum of tracked connections: each takes some tens of kilobytes.
const MAX_CONNECTIONS: usize = 10_000;

/// The connections of a capture while it is read.
struct CapturedConnections {
    keep: Keep,
    by_ends: HashMap<(SocketAddr, SocketAddr), CapturedConnection>,
    packets: u64,
    others: u64,
    left_out: bool,
    clock: CaptureClock,
    began: Option<Duration>,
}

impl CapturedConnections {
    fn add(&mut self, at: Duration, link: Link, data: &[u8], wire_length: usize) {
        self.packets += 1;
        let Some(segment) = Segment::parse(link, data, wire_length) else {
            self.others += 1;
            return;
        };
        let at = self.clock.time(at);
        let began = *self.began.get_or_insert(at);
        let ends = (segment.from.min(segment.to), segment.from.max(segment.to));
        if !self.by_ends.contains_key(&ends) && self.by_ends.len() == MAX_CONNECTIONS {
            self.left_out = true;
            return;
        }
        let connection =
            self.by_ends.entry(ends).or_insert_with(|| CapturedConnection::new(&segment, at, self.keep));
        // Packets of several interfaces may be stored out of order; a connection's time never goes back.
        connection.add(at.max(began), &segment);
    }
}

impl Capture {
    /// Reads the capture at `path` up to its end or its first damage.
    ///
    /// # Errors
    /// The file is unreadable, is not a capture, or holds no TCP data.
    pub fn load(path: &Path, keep: Keep) -> Result<Self, Failure> {
        let fail = |error: std::io::Error| {
            Failure::new(
                FailureKind::NotFound,
                format!("cannot read the capture {}: {error}", path.display()),
            )
        };
        let file = File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.is_dir() {
            return Err(fail(std::io::ErrorKind::IsADirectory.into()));
        }
        Self::read(file, path, keep)
    }

    /// Reads a capture from a stream, like [`load`](Self::load); `path` only names it in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(from: impl Read + Send, path: &Path, keep: Keep) -> Result<Self, Failure> {
        let mut all = CapturedConnections {
            keep,
            by_ends: HashMap::new(),
            packets: 0,
            others: 0,
            left_out: false,
            clock: CaptureClock::default(),
            began: None,
        };
        let damage = file::read(from, path, |at, link, data, length| all.add(at, link, data, length))?;
        let left_out = all
            .left_out
            .then(|| format!("more than {MAX_CONNECTIONS} connections; the others were left out"));
        let leaps = all.clock.leaps.then(|| "its clock leaps: the time of a leap counts as zero".to_owned());
        let mut flows: Vec<Flow> = all.by_ends.into_values().filter_map(CapturedConnection::end).collect();
        flows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then((a.from, a.to).cmp(&(b.from, b.to))));
        if flows.is_empty() {
            let (packets, others) = (all.packets, all.others);
            let message = format!(
                "no TCP connection in {} has data: of {packets} packets {others} are of another protocol, or cut within their headers; \
                 capture TCP with at least the first 128 bytes of each packet (tcpdump -s 128)",
                path.display()
            );
            return Err(Failure::new(FailureKind::Data, message));
        }
        Ok(Self { flows, packets: all.packets, others: all.others, damage: damage.or(left_out).or(leaps) })
    }
}
