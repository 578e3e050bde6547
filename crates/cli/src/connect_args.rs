//! Options of connections and of request headers; the names are curl's.

use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;
use longhaul_core::proto::http::HeaderField;
use longhaul_engine::connect::{AddressFamily, AddressRules, FixedAddresses};
use longhaul_engine::source::http::{ClientConfig, ProxyPolicy};

/// Options of connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// The proxy: http://, socks5:// or socks5h:// (the proxy looks up names); "" uses none
    ///
    /// It precedes http_proxy, https_proxy and all_proxy; hosts that no_proxy names are reached without it.
    #[arg(short = 'x', long, value_name = "URL")]
    proxy: Option<String>,

    /// The address to use for a host and a port, as in example.org:443:192.0.2.1; may be given several times
    #[arg(long, value_name = "HOST:PORT:ADDR[,ADDR]", value_parser = fixed)]
    resolve: Vec<FixedAddresses>,

    /// Uses IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Uses IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Trusts any server: any host on the path can read and change everything
    #[arg(short = 'k', long)]
    insecure: bool,

    /// The User-Agent of requests
    #[arg(short = 'A', long, value_name = "NAME")]
    user_agent: Option<String>,

    /// The Referer of requests: the page that links to the URL
    #[arg(short = 'e', long, value_name = "URL")]
    referer: Option<String>,
}

impl ConnectArgs {
    /// Returns the settings with these options.
    ///
    /// # Errors
    /// A proxy or a name that cannot be used.
    pub(crate) fn applied(&self, config: ClientConfig) -> anyhow::Result<ClientConfig> {
        let proxies = match &self.proxy {
            Some(url) => {
                let given = ProxyPolicy::given(url, |name| std::env::var(name).ok());
                given.check()?;
                given
            }
            None => config.proxies,
        };
        if self.insecure {
            tracing::warn!("--insecure: servers are trusted without proof; --pin or --cacert prove them");
        }
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(AddressFamily::V4),
            (_, true) => Some(AddressFamily::V6),
            _ => None,
        };
        Ok(ClientConfig {
            proxies,
            addresses: AddressRules { fixed: self.resolve.clone(), family },
            insecure: self.insecure,
            user_agent: self.user_agent.clone().unwrap_or(config.user_agent),
            ..config
        })
    }

    /// Returns the Referer header.
    pub(crate) fn referer(&self) -> anyhow::Result<Option<HeaderField>> {
        Ok(self.referer.as_ref().map(|url| HeaderField::new("Referer", url)).transpose()?)
    }
}

fn fixed(text: &str) -> Result<FixedAddresses, String> {
    let fail = || "write HOST:PORT:ADDRESS, as in example.org:443:192.0.2.1".to_owned();
    // The host may be an address of IPv6 in brackets.
    let end = text.rfind(']').filter(|_| text.starts_with('[')).unwrap_or(0);
    let (host, rest) = text.split_at(end + text[end..].find(':').ok_or_else(fail)?);
    let (port, addresses) = rest[1..].split_once(':').ok_or_else(fail)?;
    let address = |text: &str| IpAddr::from_str(text.trim_matches(['[', ']'])).map_err(|_| fail());
    let addresses = addresses.split(',').map(address).collect::<Result<Vec<_>, _>>()?;
    if host.is_empty() {
        return Err(fail());
    }
    Ok(FixedAddresses { host: host.to_owned(), port: port.parse().map_err(|_| fail())?, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fixed_addresses() {
        let read = fixed("h:443:192.0.2.1,[::1]").unwrap();
        assert_eq!((read.host.as_str(), read.port, read.addresses.len()), ("h", 443, 2));
        assert_eq!(fixed("[::2]:80:::1").unwrap().host, "[::2]");
        for text in ["", "h", "h:80", "h:80:", "h:x:::1", ":80:::1", "h:80:name"] {
            assert!(fixed(text).is_err(), "{text}");
        }
    }
}
