//! Measures a path and its server: which knob makes a slow path fast?
//!
//! ```text
//!  target    host or URL -> address
//!  rtt       handshakes, ICMP echoes
//!  http      what the server can do; tcp_flows: bodies by number of connections
//!  endpoint  our server's: udp_session carries trains, tcp_flows its streams, upload those to it
//!  ftp, iperf3
//!            -> core::probe: estimators, verdict -> path memory
//! ```
//!
//! All but sockets and clocks is in [`longhaul_core::probe`].

mod budget;
mod endpoint;
mod endpoint_request;
mod error;
mod findings;
mod ftp;
mod http;
mod iperf3;
mod rtt;
mod sweep;
mod target;
mod tcp_flows;
mod udp_session;
mod upload;

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Instant;

use longhaul_core::probe::message::PROBE_HEADER;
use longhaul_core::probe::report::ProbeReport;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;

use crate::source::http::{ClientConfig, HttpError};

pub use error::ProbeError;
use findings::Findings;
pub use target::ProbeTarget;

/// How to probe.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Sweeps too: sizes of messages and buffers, numbers of streams, congestion controls.
    pub full: bool,
    /// The upload alone, with all of the time.
    pub upload: bool,
    /// The size of the file that the verdict is for.
    pub size: Bytes,
    /// The HTTP client's settings.
    pub client: ClientConfig,
    /// The user's file of known paths; nothing is kept where `None`.
    pub memory: Option<PathBuf>,
}

/// What a probe came to.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// What was found; what failed is named in it too.
    pub report: ProbeReport,
    /// Why the server was not measured.
    pub failure: Option<ProbeError>,
}

/// Probes a target; `progress` is told what is measured next.
///
/// # Errors
/// [`ProbeError`] where nothing could be measured: the host is unknown, or does not answer at all.
pub fn run(
    target: &ProbeTarget,
    options: &ProbeOptions,
    progress: &dyn Fn(&str),
) -> Result<ProbeOutcome, ProbeError> {
    let started = Instant::now();
    progress("RTT");
    let options = numbered(options)?;
    let address = target.reach()?;
    let mut findings = Findings::new(target, address, started, &options);
    let handshakes = match target {
        // iperf3 begins a test with each connection, and reports those that send nothing as errors.
        ProbeTarget::Iperf3 { .. } => rtt::ONE_HANDSHAKE,
        ProbeTarget::Http(_) | ProbeTarget::Ftp(_) => rtt::HANDSHAKES,
    };
    rtt::measure(&mut findings, address, handshakes)?;
    let failure = match target {
        ProbeTarget::Http(url) => http::measure(&mut findings, url, progress).err(),
        ProbeTarget::Ftp(url) => ftp::measure(&mut findings, url, address, progress).err(),
        ProbeTarget::Iperf3 { host, port } => iperf3::measure(&mut findings, host, *port, progress).err(),
    };
    Ok(ProbeOutcome { report: findings.conclude(failure.as_ref()), failure })
}

/// Numbers the probe in the headers of its requests: a measurement endpoint tells the probes of one address apart by it.
fn numbered(options: &ProbeOptions) -> Result<ProbeOptions, ProbeError> {
    // The keys of each state are random; zero is the number of no probe.
    let number = RandomState::new().hash_one(PROBE_HEADER) | 1;
    let header = HeaderField::new(PROBE_HEADER, &format!("{number:x}")).map_err(HttpError::from)?;
    let mut options = options.clone();
    options.client.headers.push(header);
    Ok(options)
}
