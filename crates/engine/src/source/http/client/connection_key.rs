//! What a connection can be used for.

use std::time::Duration;

use longhaul_core::units::Bytes;
use url::Host;

use crate::source::http::client::config::TlsConfig;
use crate::source::http::target::proxy::ProxyKind;

/// What two connections must have in common so that either can carry a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionKey {
    pub(crate) https: bool,
    pub(crate) server: (Host<String>, u16),
    /// The zone of the server's or the proxy's address.
    pub(crate) zone: Option<u32>,
    pub(crate) proxy: Option<(ProxyKind, Host<String>, u16)>,
    pub(crate) tls: TlsConfig,
    pub(crate) recv_buffer: Option<Bytes>,
    pub(crate) congestion: Option<String>,
    pub(crate) tick: Duration,
}

impl ConnectionKey {
    /// Returns whether a connection of this key can serve in place of one of the `wanted`: a receive buffer may be smaller or larger by
    /// a tenth, as it is computed from an RTT that is measured again.
    pub(crate) fn nearly_fits(&self, wanted: &Self) -> bool {
        let near = match (self.recv_buffer, wanted.recv_buffer) {
            (Some(own), Some(wanted)) => own.get().abs_diff(wanted.get()) <= wanted.get() / 10,
            (own, wanted) => own == wanted,
        };
        near && *wanted == Self { recv_buffer: wanted.recv_buffer, ..self.clone() }
    }
}
