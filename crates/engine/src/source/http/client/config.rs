//! The client's settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::proto::cookies::CookieJar;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;

use crate::connect::{AddressRules, SocketSettings};
use crate::source::http::authentication::credentials::Credentials;
use crate::source::http::authentication::key_pin::KeyPin;
use crate::source::http::authentication::netrc_file::NetrcFile;
use crate::source::http::target::proxy::ProxyPolicy;
use crate::source::http::target::redirected_headers::is_secret;

/// The timeouts of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Together: name resolution, connecting, a proxy's tunnel, the TLS handshake, an FTP server's
    /// greeting and security exchange.
    pub connect: Duration,
    /// Each of: sending a request, a response's whole head.
    pub head: Duration,
    /// The wait of one read of the body for data (SO_RCVTIMEO), which bounds the delay of
    /// cancellation.
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

/// The client's settings; the default reads neither environment nor files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientConfig {
    /// The contents of requests.
    pub requests: RequestConfig,
    /// The logins, and where they may be sent.
    pub logins: LoginConfig,
    /// The proxies to use.
    pub proxies: ProxyPolicy,
    /// Fixed addresses of hosts, and the address family to use.
    pub addresses: AddressRules,
    /// The settings that TLS sessions depend on.
    pub tls: TlsConfig,
    /// Whether data must be encrypted: unencrypted schemes are refused.
    pub encrypt: bool,
    /// The timeouts of each step.
    pub timeouts: Timeouts,
    /// The socket's receive buffer as passed to setsockopt (the kernel doubles it); `None` uses the
    /// kernel's autotuning.
    pub recv_buffer: Option<Bytes>,
    /// The congestion control of new connections, which must be available in the kernel; `None`
    /// uses the kernel's default.
    pub congestion: Option<String>,
}

/// The contents of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestConfig {
    /// Additional headers; those that may hold a secret are sent only to the first URL's origin.
    pub headers: Vec<HeaderField>,
    /// The value of User-Agent, unless `headers` holds one.
    pub user_agent: String,
    /// Cookies, each sent only to its own server.
    pub cookies: Option<Arc<CookieJar>>,
    /// Whether logins and headers are also sent to other origins that a redirect leads to.
    pub location_trusted: bool,
}

impl Default for RequestConfig {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            user_agent: concat!("longhaul/", env!("CARGO_PKG_VERSION")).to_owned(),
            cookies: None,
            location_trusted: false,
        }
    }
}

/// The logins, and where they may be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginConfig {
    /// Credentials for the first URL's origin; a login within the URL takes precedence.
    pub credentials: Option<Credentials>,
    /// The use of a .netrc file.
    pub netrc: NetrcUse,
    /// Whether logins and tokens may be sent unencrypted beyond loopback; if not, such requests
    /// fail.
    pub allow_cleartext: bool,
}

/// The use of a .netrc file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetrcUse {
    /// The file, read when a server answers 401.
    pub file: Option<NetrcFile>,
    /// Whether its login is sent with the first request, and not only after a 401.
    pub at_once: bool,
    /// Whether its `default` applies, which names no host.
    pub default_applies: bool,
}

impl Default for NetrcUse {
    fn default() -> Self {
        Self { file: None, at_once: false, default_applies: true }
    }
}

/// A client's certificate and its key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificate {
    /// The certificate, then its chain without the root certificate.
    pub cert: PathBuf,
    /// The private key, unencrypted: PKCS #8, PKCS #1 or SEC 1. It may be in the same file as the
    /// certificate.
    pub key: PathBuf,
}

/// The settings that a TLS session depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TlsConfig {
    /// A PEM file with root certificates to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The permitted keys of servers, independent of their authorities; if empty, any certified
    /// key.
    pub pins: Vec<KeyPin>,
    /// The client's certificate, sent to servers that request one.
    pub certificate: Option<ClientCertificate>,
    /// Whether servers are trusted without verification if `pins` is empty.
    pub insecure: bool,
}

impl ClientConfig {
    /// Returns the settings for another origin, without the logins and headers reserved for the
    /// first origin.
    pub fn without_secrets(&self) -> Self {
        let mut config = self.clone();
        config.logins.credentials = None;
        config.logins.netrc.default_applies = false;
        config.requests.headers.retain(|header| !is_secret(header));
        config
    }

    /// Returns whether servers see one user under both settings.
    pub(crate) fn is_of_same_user(&self, other: &Self) -> bool {
        let secrets = |config: &Self| {
            let headers = config.requests.headers.iter();
            headers.filter(|header| is_secret(header)).cloned().collect::<Vec<_>>()
        };
        self.logins.credentials == other.logins.credentials
            && self.logins.netrc.file == other.logins.netrc.file
            && self.requests.cookies == other.requests.cookies
            && secrets(self) == secrets(other)
    }

    /// Returns the settings of sockets.
    pub(crate) fn sockets(&self) -> SocketSettings<'_> {
        SocketSettings {
            recv_buffer: self.recv_buffer,
            congestion: self.congestion.as_deref(),
            tick: self.timeouts.tick,
        }
    }

    /// Reads the settings of the user's environment: proxies and .netrc.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let netrc = NetrcUse { file: NetrcFile::usual(variable), ..NetrcUse::default() };
        let logins = LoginConfig { netrc, ..LoginConfig::default() };
        Self { proxies: ProxyPolicy::from_vars(variable), logins, ..Self::default() }
    }
}
