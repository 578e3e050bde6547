//! Measures a path and its server, to find the setting that makes a slow path fast.
//!
//! ```text
//!  target    host or URL -> address
//!  rtt       handshakes, ICMP echoes
//!  http      the server's capabilities; tcp_flows: bodies by number of connections
//!  endpoint  our own server: trains by udp_session, streams by tcp_flows, and upload
//!  ftp, iperf3
//!            -> core::probe: estimators, verdict -> path memory
//! ```
//!
//! Everything but sockets and clocks is in [`longhaul_core::probe`].

mod budget;
mod endpoint;
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

use std::path::PathBuf;
use std::time::Instant;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::report::ProbeReport;
use longhaul_core::units::{Bytes, Rate};
use thiserror::Error;

use crate::source::http::{ClientConfig, HttpError};

use findings::Findings;
pub use rtt::handshake_rtt;
pub use target::{ProbeTarget, reach};

/// The settings of a probe.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// Includes sweeps: sizes of messages and buffers, numbers of streams, congestion controls.
    pub full: bool,
    /// Measures only the upload, with all of the time.
    pub upload: bool,
    /// The highest rate of datagrams, at the IP layer; by default the server's.
    pub ceiling: Option<Rate>,
    /// The file size that the verdict assumes.
    pub size: Bytes,
    /// The HTTP client's settings.
    pub client: ClientConfig,
    /// The path memory's file; `None` stores nothing.
    pub memory: Option<PathBuf>,
}

/// The outcome of a probe.
#[derive(Debug)]
pub struct ProbeOutcome {
    /// The findings, including failed measurements.
    pub report: ProbeReport,
    /// The failure that ended the measurement of the server.
    pub failure: Option<ProbeError>,
}

/// The reason why a target or its server cannot be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The HTTP server was not measured.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// Any other failure.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl ProbeError {
    /// Creates the error of a target that is no host and no URL, or names no address.
    fn target(text: &str, why: &str) -> Self {
        let message = format!(
            "cannot probe '{text}': {why}; write a host, or a URL of http, https, ftp, ftps, gsiftp or iperf3"
        );
        Failure::new(FailureKind::Usage, message).into()
    }

    /// Returns whether earlier measurements may be cut short too. A server that refuses one request
    /// has answered the earlier ones.
    fn cuts_measurements(&self) -> bool {
        !matches!(self, Self::Http(HttpError::Status { .. }))
    }

    /// Returns whether the measurement was cancelled, as at the end of its time.
    fn is_cancelled(&self) -> bool {
        self.kind() == FailureKind::Interrupted
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Http(error) => error.kind(),
            Self::Failed(failure) => failure.kind,
        }
    }
}

/// Probes a target; calls `progress` with the name of each next measurement.
///
/// # Errors
/// [`ProbeError`] if nothing could be measured: the host does not resolve or does not answer.
pub fn run(
    target: &ProbeTarget,
    options: &ProbeOptions,
    progress: &dyn Fn(&str),
) -> Result<ProbeOutcome, ProbeError> {
    let started = Instant::now();
    progress("RTT");
    let address = reach(target.url(), target::REACH)?;
    let mut findings = Findings::new(target, address, started, options, progress);
    let handshakes = match target {
        // iperf3 starts a test for each connection, and reports an idle connection as an error.
        ProbeTarget::Iperf3(_) => rtt::ONE_HANDSHAKE,
        ProbeTarget::Http(_) | ProbeTarget::Ftp(_) => rtt::HANDSHAKES,
    };
    rtt::measure(&mut findings, address, handshakes)?;
    let measured = match target {
        ProbeTarget::Http(url) => http::measure(&mut findings, url),
        ProbeTarget::Ftp(url) => ftp::measure(&mut findings, url, address),
        ProbeTarget::Iperf3(url) => iperf3::measure(&mut findings, url),
    };
    let failure = measured.err().or_else(|| findings.unmeasured());
    Ok(ProbeOutcome { report: findings.conclude(failure.as_ref()), failure })
}
