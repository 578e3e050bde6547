//! The client's settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::proto::cookies::CookieJar;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;

use super::credentials::Credentials;
use super::key_pin::KeyPin;
use super::netrc_file::NetrcFile;
use super::proxy::ProxyPolicy;
use crate::connect::AddressRules;

/// How long the client waits for each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For name resolution and connecting, together.
    pub connect: Duration,
    /// For each of: the TLS handshake, a proxy's answer, sending a request, a response's whole head.
    pub head: Duration,
    /// How long a read of the body waits before it returns without data (SO_RCVTIMEO); bounds the delay of
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Additional request headers; Authorization and Cookie are sent only to the first URL's origin.
    pub headers: Vec<HeaderField>,
    /// Credentials for the first URL's origin; a login within the URL takes precedence.
    pub credentials: Option<Credentials>,
    /// The .netrc file, read when a server answers 401.
    pub netrc: Option<NetrcFile>,
    /// Whether the login of the .netrc goes with the first request, and not only where a server answers 401.
    pub netrc_at_once: bool,
    /// Whether the .netrc's `default` counts too, which names no host.
    pub netrc_default: bool,
    /// Cookies; each goes to its own server only.
    pub cookies: Option<Arc<CookieJar>>,
    /// Whether logins and tokens are sent unencrypted beyond loopback; otherwise a request that would do so fails.
    pub allow_cleartext: bool,
    /// The proxies to use.
    pub proxies: ProxyPolicy,
    /// Which addresses hosts have, and which of them are used.
    pub addresses: AddressRules,
    /// Whether servers with TLS are trusted without any proof, where `pins` names no key.
    pub insecure: bool,
    /// A PEM file with root certificates to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The keys that a server with TLS may have, whatever authority certified them; any certified key where the list is empty.
    pub pins: Vec<KeyPin>,
    /// The certificate that the client shows to servers that request one.
    pub certificate: Option<ClientCertificate>,
    /// Whether data must be encrypted on its way: schemes that do not are refused.
    pub encrypt: bool,
    /// The timeouts of each step.
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

/// A client's certificate and its key, in PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificate {
    /// The certificate, then its chain without the root certificate.
    pub cert: PathBuf,
    /// The private key, unencrypted: PKCS #8, PKCS #1 or SEC 1. It may be in the same file.
    pub key: PathBuf,
}

/// The part of the settings that a TLS session depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct TlsConfig {
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) pins: Vec<KeyPin>,
    pub(crate) certificate: Option<ClientCertificate>,
    pub(crate) insecure: bool,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            credentials: None,
            netrc: None,
            netrc_at_once: false,
            netrc_default: true,
            cookies: None,
            allow_cleartext: false,
            proxies: ProxyPolicy::default(),
            addresses: AddressRules::default(),
            insecure: false,
            ca_file: None,
            pins: Vec::new(),
            certificate: None,
            encrypt: false,
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
    /// Returns the settings for another origin: without the logins and the headers that only the first origin may see.
    pub fn without_secrets(&self) -> Self {
        let mut config = Self { credentials: None, netrc_default: false, ..self.clone() };
        config.headers.retain(|header| !is_secret(header));
        config
    }

    /// Returns what TLS sessions depend on.
    pub(crate) fn tls(&self) -> TlsConfig {
        let (ca_file, pins, certificate) =
            (self.ca_file.clone(), self.pins.clone(), self.certificate.clone());
        TlsConfig { ca_file, pins, certificate, insecure: self.insecure }
    }

    /// Makes the settings of the user's environment: proxies and .netrc.
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self {
            proxies: ProxyPolicy::from_vars(variable),
            netrc: NetrcFile::usual(variable),
            ..Self::default()
        }
    }
}

/// Returns whether only the first URL's origin may see a header.
pub(super) fn is_secret(header: &HeaderField) -> bool {
    ["authorization", "cookie", "host"].iter().any(|name| header.is(name))
}
