//! Why a probe, or a part of it, failed; every message names the operation, the host or URL, and a remedy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::probe::iperf3::Iperf3Error;
use thiserror::Error;

use crate::connect::ConnectError;
use crate::failure::FailureKind;
use crate::source::http::HttpError;

/// Why a target, or its server, cannot be measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The target is no host and no URL.
    #[error(
        "cannot probe '{text}': {why}; write a host, or a URL of http, https, ftp, ftps, gsiftp or iperf3"
    )]
    Target {
        /// What was given.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// The host is not known.
    #[error(transparent)]
    Host(ConnectError),
    /// Neither ICMP echoes nor TCP handshakes are answered.
    #[error(
        "{address} does not answer: {handshake}; ICMP: {icmp}; check the host's name, its port, and firewalls on the way"
    )]
    Silent {
        /// The address.
        address: SocketAddr,
        /// What became of the handshakes.
        handshake: String,
        /// What became of the echoes.
        icmp: String,
    },
    /// The port does not accept connections, although the host answers.
    #[error("cannot connect to {address}: {reason}; check that the server runs, and the port")]
    Port {
        /// The address.
        address: SocketAddr,
        /// What became of the handshakes.
        reason: String,
    },
    /// The HTTP server was not measured.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The answer of a measurement endpoint is not one.
    #[error("cannot use the measurement endpoint of {at}: {why}; its version of longhaul may be another")]
    Endpoint {
        /// The server.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// The FTP server was not measured.
    #[error("cannot use the FTP server at {address}: {why}; is this the right port and scheme?")]
    Ftp {
        /// The address.
        address: SocketAddr,
        /// What is wrong.
        why: String,
    },
    /// The server accepts requests, and then sends nothing.
    #[error(
        "no throughput was measured: {at} sent nothing of its file within {waited:?}; try again when the server is less busy"
    )]
    Stalled {
        /// The URL.
        at: String,
        /// How long it had.
        waited: Duration,
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
        /// What iperf3 says.
        source: Iperf3Error,
    },
}

impl ProbeError {
    /// Returns whether the measurements before it may have been cut short: a server that refuses a request has answered those before.
    pub(super) fn cuts_measurements(&self) -> bool {
        !matches!(self, Self::Http(HttpError::Status { .. }))
    }

    /// Classifies the error.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Target { .. } => FailureKind::Usage,
            Self::Host(error) => error.class(),
            Self::Silent { .. } | Self::Port { .. } => FailureKind::Unavailable,
            Self::Http(error) => error.kind().into(),
            Self::Stalled { .. } => FailureKind::Temporary,
            Self::Endpoint { .. } | Self::Ftp { .. } => FailureKind::Protocol,
            Self::Local { .. } => FailureKind::Host,
            Self::Iperf3 { source: Iperf3Error::Refused(_) | Iperf3Error::Endless(_), .. } => {
                FailureKind::Unavailable
            }
            Self::Iperf3 { source: Iperf3Error::Garbage(_), .. } => FailureKind::Protocol,
        }
    }
}
