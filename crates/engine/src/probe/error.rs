//! Errors of a probe or a part of it; every message names the operation, the host or URL, and a
//! remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::failure::FailureKind;
use longhaul_core::probe::iperf3::Iperf3Error;
use thiserror::Error;

use crate::connect::ConnectError;
use crate::source::http::HttpError;

/// The reason why a target or its server cannot be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The target is neither a host nor a URL.
    #[error(
        "cannot probe '{text}': {why}; write a host, or a URL of http, https, ftp, ftps, gsiftp or iperf3"
    )]
    Target {
        /// The user's text.
        text: String,
        /// The error.
        why: String,
    },
    /// The host does not resolve.
    #[error(transparent)]
    Host(ConnectError),
    /// Neither ICMP echoes nor TCP handshakes are answered.
    #[error(
        "{address} does not answer: {handshake}; ICMP: {icmp}; check the host's name, its port, and firewalls on the way"
    )]
    Silent {
        /// The address.
        address: SocketAddr,
        /// The result of the handshakes.
        handshake: String,
        /// The result of the echoes.
        icmp: String,
    },
    /// The port does not accept connections, although the host answers.
    #[error("cannot connect to {address}: {reason}; check that the server runs, and the port")]
    Port {
        /// The address.
        address: SocketAddr,
        /// The result of the handshakes.
        reason: String,
    },
    /// The HTTP server was not measured.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The measurement endpoint's answer is invalid.
    #[error("cannot use the measurement endpoint of {at}: {why}; its version of longhaul may be another")]
    Endpoint {
        /// The server.
        at: String,
        /// The error.
        why: String,
    },
    /// The FTP server was not measured.
    #[error("cannot use the FTP server at {address}: {why}; is this the right port and scheme?")]
    Ftp {
        /// The address.
        address: SocketAddr,
        /// The error.
        why: String,
    },
    /// The server accepts a request but does not send the body.
    #[error(
        "no throughput was measured: {at} sent too little of its file within {waited:?}; try again when the server is less busy"
    )]
    Stalled {
        /// The URL.
        at: String,
        /// The time waited.
        waited: Duration,
    },
    /// A measurement ended without a rate, and no other one has yielded one.
    #[error("no rate was measured at {at}: {why}; try again when the server and the path are less busy")]
    Unmeasured {
        /// The target.
        at: String,
        /// The measurement, and the reason.
        why: String,
    },
    /// A socket or a program of this host failed.
    #[error("cannot {what}: {source}")]
    Local {
        /// The operation, with its object.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// iperf3 failed.
    #[error("cannot measure with iperf3 at {at}: {source}")]
    Iperf3 {
        /// The server.
        at: String,
        /// The error of iperf3.
        source: Iperf3Error,
    },
}

impl ProbeError {
    /// Returns whether earlier measurements may be cut short too. A server that refuses one request
    /// has answered the earlier ones.
    pub(super) fn cuts_measurements(&self) -> bool {
        !matches!(self, Self::Http(HttpError::Status { .. }))
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Target { .. } => FailureKind::Usage,
            Self::Host(error) => error.kind(),
            Self::Silent { .. } | Self::Port { .. } => FailureKind::Unavailable,
            Self::Http(error) => error.kind(),
            Self::Stalled { .. } | Self::Unmeasured { .. } => FailureKind::Temporary,
            Self::Endpoint { .. } | Self::Ftp { .. } => FailureKind::Protocol,
            Self::Local { .. } => FailureKind::Host,
            Self::Iperf3 { source: Iperf3Error::Refused(_) | Iperf3Error::Endless(_), .. } => {
                FailureKind::Unavailable
            }
            Self::Iperf3 { source: Iperf3Error::Garbage(_), .. } => FailureKind::Protocol,
        }
    }
}
