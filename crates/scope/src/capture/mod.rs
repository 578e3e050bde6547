//! Captured packets of TCP connections, read into what limited each: pcap and pcapng, of either
//! side.
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
mod file;
mod flow;
mod flow_table;
mod packet;
mod record;
mod response_times;
mod sent_segments;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use longhaul_core::failure::{Failure, FailureKind};

pub use flow::{CaptureCoverage, Flow, Unexplained};

use flow_table::FlowTable;

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
        let mut all = FlowTable::new(keep);
        let damage = file::read(from, path, |at, link, data, length| all.add(at, link, data, length))?;
        let (packets, others) = (all.packets, all.others);
        let (flows, partial) = all.end();
        if flows.is_empty() {
            let message = format!(
                "no TCP connection in {} has data: of {packets} packets {others} are of another protocol, or cut within their headers; \
                 capture TCP with at least the first 128 bytes of each packet (tcpdump -s 128)",
                path.display()
            );
            return Err(Failure::new(FailureKind::Data, message));
        }
        Ok(Self { flows, packets, others, damage: damage.or(partial) })
    }
}
