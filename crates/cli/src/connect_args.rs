//! Options of connections, named like curl's.

use std::time::{Duration, Instant};

use clap::Args;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::connect::{AddressFamily, AddressRules, FixedAddresses, parse_address};
use longhaul_engine::job::TransferOptions;
use longhaul_engine::source::http::{ClientConfig, ProxyPolicy, Timeouts};

use crate::values::time;

/// Options of connections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectArgs {
    /// Use a proxy: http://, socks5:// or socks5h:// (the proxy looks up names); "" uses none
    ///
    /// It precedes http_proxy, https_proxy and all_proxy; hosts that no_proxy names are reached
    /// without it.
    #[arg(short = 'x', long, value_name = "URL")]
    proxy: Option<String>,

    /// Use this address for a host and a port, as example.org:443:192.0.2.1; may be given several
    /// times
    #[arg(long, value_name = "HOST:PORT:ADDR[,ADDR]", value_parser = fixed)]
    resolve: Vec<FixedAddresses>,

    /// Use IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Use IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,

    /// End the command after this time, whatever is under way; what is there can be resumed
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) max_time: Option<Duration>,

    /// Wait at most this long for a connection, with its handshakes (proxy, TLS, GSI) and a
    /// server's greeting [default: 30s]
    ///
    /// Without it, a shorter --stall-timeout holds. The TLS handshake of an FTP data connection may
    /// take --stall-timeout, too.
    #[arg(long, value_name = "TIME", value_parser = time)]
    connect_timeout: Option<Duration>,

    /// Treat a connection as dead when next to nothing moves on it for this time
    ///
    /// The command `work` lets another worker have a unit if a copy or upload of local files has
    /// waited this long for a file system.
    #[arg(long, value_name = "TIME", default_value = format!("{}s", TransferOptions::DEFAULT_STALL.as_secs()), value_parser = time)]
    pub(crate) stall_timeout: Duration,

    /// Allow a stream this many failures in a row
    #[arg(long, value_name = "N", default_value_t = TransferOptions::DEFAULT_RETRIES)]
    pub(crate) retries: u32,
}

impl ConnectArgs {
    /// Returns the cancel flag of the command, which --max-time raises.
    pub(crate) fn cancel(&self) -> Cancel {
        match self.max_time {
            Some(time) => Cancel::new().child_until(Instant::now() + time),
            None => Cancel::new(),
        }
    }

    /// Applies these options to client settings.
    ///
    /// # Errors
    /// A proxy that cannot be used.
    pub(crate) fn applied(&self, config: ClientConfig) -> anyhow::Result<ClientConfig> {
        let proxies = match &self.proxy {
            Some(url) => {
                let given = ProxyPolicy::given(url, |name| std::env::var(name).ok());
                given.check()?;
                given
            }
            None => config.proxies,
        };
        let family = match (self.ipv4, self.ipv6) {
            (true, _) => Some(AddressFamily::V4),
            (_, true) => Some(AddressFamily::V6),
            _ => None,
        };
        let connect = self.connect_timeout.unwrap_or(config.timeouts.connect.min(self.stall_timeout));
        Ok(ClientConfig {
            proxies,
            addresses: AddressRules { fixed: self.resolve.clone(), family, ..config.addresses },
            timeouts: Timeouts { connect, head: self.stall_timeout, ..config.timeouts },
            ..config
        })
    }
}

fn fixed(text: &str) -> Result<FixedAddresses, String> {
    let fail = || "write HOST:PORT:ADDRESS, as in example.org:443:192.0.2.1".to_owned();
    // The host may be an IPv6 address in brackets.
    let end = text.rfind(']').filter(|_| text.starts_with('[')).unwrap_or(0);
    let (host, rest) = text.split_at(end + text[end..].find(':').ok_or_else(fail)?);
    let (port, addresses) = rest[1..].split_once(':').ok_or_else(fail)?;
    let address = |text: &str| parse_address(text.trim_matches(['[', ']']));
    let addresses = addresses.split(',').map(address).collect::<Result<Vec<_>, _>>();
    let addresses = addresses.map_err(|why| format!("{why}; {}", fail()))?;
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
