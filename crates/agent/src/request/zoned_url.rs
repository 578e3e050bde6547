//! The URL of a file with the zone of its host, which a [`Url`] cannot hold.

use std::fmt;
use std::net::Ipv6Addr;

use longhaul_engine::connect::{parse_zoned, split_zone};
use longhaul_engine::source::is_known_scheme;
use url::Url;

use super::invalid;
use crate::error::QueueError;

/// The URL of a file that can be transferred.
///
/// The interface of a zone may be absent while the transfer waits: it is resolved for each run, and
/// never to be shown.
#[derive(Debug, Clone)]
pub(super) struct ZonedUrl {
    /// The URL without the zone.
    pub(super) url: Url,
    /// The address of the host with its zone, such as `fe80::1%25eth0`.
    pub(super) zoned: Option<String>,
}

impl ZonedUrl {
    /// Parses a URL.
    pub(super) fn parse(text: &str) -> Result<Self, QueueError> {
        let (text, zoned) = split_zone(text.trim());
        // A text that is not a URL may be a secret pasted by mistake, so it is not repeated.
        let url: Url = text.parse().map_err(|error| invalid(format!("this is no URL: {error}")))?;
        if url.host().is_none() || !is_known_scheme(url.scheme()) {
            return Err(invalid(format!(
                "this URL ('{}:') cannot be transferred: write one of http, https, ftp, ftps or gsiftp",
                url.scheme()
            )));
        }
        Ok(Self { url, zoned: zoned.map(str::to_owned) })
    }

    /// Returns the parts that identify the server.
    pub(super) fn server(&self) -> (&str, Option<&str>, Option<u16>, Option<&str>) {
        (self.url.scheme(), self.url.host_str(), self.url.port_or_known_default(), self.zoned.as_deref())
    }

    /// Returns the address of the host and the index of its interface, if it has a zone.
    pub(super) fn zone(&self) -> Result<Option<(Ipv6Addr, u32)>, QueueError> {
        self.zoned.as_deref().map(parse_zoned).transpose().map_err(invalid)
    }
}

impl fmt::Display for ZonedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.zoned, self.url.host_str()) {
            // A login holds no bracket: `Url` encodes them.
            (Some(zoned), Some(host)) => {
                f.write_str(&self.url.as_str().replacen(host, &format!("[{zoned}]"), 1))
            }
            _ => f.write_str(self.url.as_str()),
        }
    }
}
