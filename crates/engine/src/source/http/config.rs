//! How the client behaves.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;

use super::credentials::{Credentials, netrc_path};
use super::proxy::ProxyPolicy;

/// How long the client waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For finding the host and connecting to it, in all.
    pub connect: Duration,
    /// For each of: the TLS handshake, a proxy's answer, sending a request, a response's whole head.
    pub head: Duration,
    /// How long a read of the body waits before it returns without data (SO_RCVTIMEO); bounds how late
    /// cancellation is noticed.
    pub tick: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            head: Duration::from_secs(60),
            tick: Duration::from_millis(100),
        }
    }
}

/// The client's settings; the default looks at neither environment nor files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Further request headers; Authorization and Cookie go only to the first URL's origin.
    pub headers: Vec<HeaderField>,
    /// Credentials for the first URL's origin; a login within the URL comes before them.
    pub credentials: Option<Credentials>,
    /// The .netrc file, read when a server answers 401.
    pub netrc: Option<PathBuf>,
    /// Which proxy to use for what.
    pub proxies: ProxyPolicy,
    /// A PEM file with root certificates to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// The value of User-Agent, unless `headers` holds one.
    pub user_agent: String,
    /// The size of the socket's receive buffer as given to setsockopt (the kernel doubles it); `None`
    /// leaves it to the kernel's autotuning.
    pub recv_buffer: Option<Bytes>,
    /// The congestion control of new connections, which the kernel must have; `None` leaves it to the kernel.
    pub congestion: Option<String>,
    /// How many redirects to follow.
    pub max_redirects: usize,
    /// Whether a redirect may lead from https to http.
    pub allow_downgrade: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            credentials: None,
            netrc: None,
            proxies: ProxyPolicy::default(),
            ca_file: None,
            timeouts: Timeouts::default(),
            user_agent: concat!("longhaul/", env!("CARGO_PKG_VERSION")).to_owned(),
            recv_buffer: None,
            congestion: None,
            max_redirects: 20,
            allow_downgrade: false,
        }
    }
}

impl ClientConfig {
    /// Makes the settings that the user's environment asks for: proxies and .netrc.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self { proxies: ProxyPolicy::from_vars(variable), netrc: netrc_path(variable), ..Self::default() }
    }
}
