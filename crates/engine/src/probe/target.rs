//! The target of a probe: a host, or a URL.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use url::{Host, Url};

use crate::cancel::Cancel;
use crate::connect::{
    AddressRules, Deadline, ResolvedHosts, SocketSettings, dial, parse_address, without_zone,
};
use crate::source::default_port;
use crate::source::http::SafeUrl;

use super::ProbeError;

/// The port of iperf3 servers.
const IPERF3_PORT: u16 = 5201;
/// The timeout of a probe for reaching its target.
pub(super) const REACH: Duration = Duration::from_secs(5);
/// The interval at which a wait checks for cancellation.
const DEADLINE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The target of a probe; its URL has a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeTarget {
    /// An HTTP server and a file on it.
    Http(Url),
    /// An FTP or GridFTP server.
    Ftp(Url),
    /// An iperf3 server; the URL has a port.
    Iperf3(Url),
}

impl ProbeTarget {
    /// Parses HOST, HOST:PORT (both mean HTTP) or a URL.
    ///
    /// # Errors
    /// [`ProbeError::Failed`].
    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        let bad = |why: &str| ProbeError::target(text, why);
        let full = match (without_zone(text).map_err(|why| bad(&why))?, parse_address(text)) {
            (text, _) if text.contains("://") => text.into_owned(),
            // A URL parser would take the first folder for a host.
            (text, _) if text.starts_with('/') => return Err(bad("it names no host")),
            (_, Ok(IpAddr::V6(address))) => format!("http://[{address}]/"),
            (text, _) => format!("http://{text}/"),
        };
        let mut url = Url::parse(&full).map_err(|error| bad(&error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("it names no host"));
        }
        match url.scheme() {
            "http" | "https" => Ok(Self::Http(url)),
            "ftp" | "ftps" | "gsiftp" => Ok(Self::Ftp(url)),
            "iperf3" => {
                let port = url.port().unwrap_or(IPERF3_PORT);
                url.set_port(Some(port)).map_err(|()| bad("it names no host"))?;
                Ok(Self::Iperf3(url))
            }
            scheme => Err(bad(&format!("the scheme {scheme} is not known"))),
        }
    }

    /// Returns the URL.
    pub(super) fn url(&self) -> &Url {
        let (Self::Http(url) | Self::Ftp(url) | Self::Iperf3(url)) = self;
        url
    }
}

/// Returns the first address of the host of `url` that accepts a connection. Resolving its name
/// takes at most `limit`, and the choice among several addresses half of that.
///
/// # Errors
/// [`ProbeError::Failed`] if the host has no address.
pub fn reach(url: &Url, limit: Duration) -> Result<SocketAddr, ProbeError> {
    let none = |why: &str| ProbeError::target(&SafeUrl::of(url).to_string(), why);
    let host = url.host().ok_or_else(|| none("it names no host"))?.to_owned();
    let port = default_port(url).ok_or_else(|| none("it names no port"))?;
    let cancel = Cancel::new();
    let (hosts, rules) = (ResolvedHosts::default(), AddressRules::default());
    let found = hosts.resolve(&host, port, &rules, &Deadline::new(&cancel, limit), DEADLINE_CHECK_INTERVAL);
    first_reached(&host, &found?, limit / 2).ok_or_else(|| none("the host has no address"))
}

/// Returns the first address that accepts a connection, in the order of Happy Eyeballs. If none
/// does, returns the first address, so that its failure is reported.
fn first_reached(host: &Host<String>, addresses: &[SocketAddr], limit: Duration) -> Option<SocketAddr> {
    let first = addresses.first().copied();
    // Connecting is left out if there is no choice, because some servers start a test for each
    // connection.
    if addresses.len() < 2 {
        return first;
    }
    let cancel = Cancel::new();
    let settings = SocketSettings { recv_buffer: None, congestion: None, tick: DEADLINE_CHECK_INTERVAL };
    match dial(&host.to_string(), addresses, settings, &Deadline::new(&cancel, limit)) {
        Ok((_, address)) => Some(address),
        Err(error) => {
            tracing::debug!("probe: {error}");
            first
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn hosts_and_urls_are_distinguished_and_a_refusing_address_is_skipped() {
        let parse = |text: &str| SafeUrl::of(ProbeTarget::parse(text).unwrap().url()).to_string();
        assert_eq!(parse("h.example"), "http://h.example/");
        assert_eq!(parse("192.0.2.1:8080"), "http://192.0.2.1:8080/");
        assert_eq!(parse("2001:db8::1"), "http://[2001:db8::1]/");
        assert_eq!(parse("[::1]:8080"), "http://[::1]:8080/");
        assert_eq!(parse("[fe80::e%lo]:8080"), "http://[fe80::e]:8080/");
        assert_eq!(parse("fe80::e%25lo"), "http://[fe80::e]/");
        assert_eq!(parse("https://u:p@h/f"), "https://h/f");
        assert_eq!(parse("iperf3://h"), "iperf3://h:5201");
        assert!(reach(ProbeTarget::parse("iperf3://[::1]:1").unwrap().url(), REACH).is_ok());
        assert!(matches!(ProbeTarget::parse("gsiftp://h/"), Ok(ProbeTarget::Ftp(_))));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let answers = listener.local_addr().unwrap();
        let refuses = SocketAddr::new("::1".parse().unwrap(), answers.port());
        let host = Host::Domain("h".to_owned());
        assert_eq!(first_reached(&host, &[refuses, answers], REACH), Some(answers));
        drop(listener);
        assert_eq!(first_reached(&host, &[refuses, answers], REACH), Some(refuses));
        assert_eq!(first_reached(&host, &[answers], REACH), Some(answers));
    }
}
