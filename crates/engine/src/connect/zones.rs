//! Zones of IPv6 addresses (RFC 4007): the interfaces that lead to link-local addresses.
//!
//! A URL names the zone behind its address (RFC 6874), but [`Url`](url::Url) holds none, and no
//! server should get it. A command's process remembers the zones of the addresses that its user has
//! given; jobs that run beside others have their own (`AddressRules::zones`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use rustix::net::netdevice::name_to_index;

/// The index of the interface of each address.
static ZONES: Mutex<BTreeMap<Ipv6Addr, u32>> = Mutex::new(BTreeMap::new());

/// Splits a URL as `http://[fe80::1%25eth0]/` into itself without the zone, and the host's address
/// with its zone.
pub fn split_zone(url: &str) -> (Cow<'_, str>, Option<&str>) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let authority = url[start..].split(['/', '?', '#']).next().unwrap_or_default();
    let start = start + authority.rfind('@').map_or(0, |at| at + 1);
    let (front, host) = url.split_at(start);
    let zoned = host.strip_prefix('[').and_then(|host| host.split_once(']'));
    let Some((zoned, behind)) = zoned.filter(|(zoned, _)| zoned.contains('%')) else {
        return (Cow::Borrowed(url), None);
    };
    let address = zoned.split('%').next().unwrap_or_default();
    (Cow::Owned(format!("{front}[{address}]{behind}")), Some(zoned))
}

/// Returns a URL without the zone of its host, which the process remembers.
///
/// # Errors
/// The reason, in words: not an address, no such interface, or another zone of the same address.
pub fn without_zone(url: &str) -> Result<Cow<'_, str>, String> {
    let (url, zoned) = split_zone(url);
    zoned.map(parse_address).transpose()?;
    Ok(url)
}

/// Parses an address with its zone, as `fe80::1%eth0`, to the address and the index of the
/// interface.
///
/// # Errors
/// The reason, in words: no such address, or no such interface.
pub fn parse_zoned(text: &str) -> Result<(Ipv6Addr, u32), String> {
    let bad = || format!("'{text}' is not an IPv6 address with its zone");
    let (address, zone) = text.split_once('%').ok_or_else(bad)?;
    let address = address.parse().map_err(|_| bad())?;
    // In a URL, `%25` stands for `%`; curl reads both.
    let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
    let zone = percent_decode_str(zone).decode_utf8_lossy();
    let by_name = || name_to_index(UdpSocket::bind("0.0.0.0:0").ok()?, &zone).ok();
    let index = zone.parse().ok().or_else(by_name);
    let index =
        index.ok_or_else(|| format!("this host has no interface '{zone}'; `ip link` lists those it has"))?;
    Ok((address, index))
}

/// Parses an address; remembers the zone of one as `fe80::1%eth0`.
///
/// # Errors
/// As of [`without_zone`].
pub fn parse_address(text: &str) -> Result<IpAddr, String> {
    if !text.contains('%') {
        return text.parse().map_err(|_| format!("'{text}' is not an IP address"));
    }
    let (address, index) = parse_zoned(text)?;
    if *ZONES.lock().entry(address).or_insert(index) == index {
        return Ok(address.into());
    }
    Err(format!("the address {address} is given with two zones; use a command for each"))
}

/// Returns an address with its zone, to connect to or to listen at.
pub fn socket_address(address: IpAddr, port: u16) -> SocketAddr {
    match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(v6) => {
            let zone = ZONES.lock().get(&v6).copied().unwrap_or_default();
            SocketAddrV6::new(v6, port, 0, zone).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use url::Host;

    use super::*;
    use crate::cancel::Cancel;
    use crate::connect::{AddressRules, Deadline, ResolvedHosts};

    #[test]
    fn zone_of_a_job_precedes_that_of_the_process_and_no_other_jobs() {
        let (hosts, cancel) = (ResolvedHosts::default(), Cancel::new());
        let address = parse_zoned("fe80::5a%2579").unwrap().0;
        parse_address("fe80::5a%79").unwrap();
        for (zones, zone) in [([].into(), 79), ([(address, 80)].into(), 80), ([(address, 81)].into(), 81)] {
            let rules = AddressRules { zones, ..AddressRules::default() };
            let (wait, host) = (Duration::from_secs(5), Host::Ipv6(address));
            let found = hosts.resolve(&host, 80, &rules, &Deadline::new(&cancel, wait), wait).unwrap();
            assert_eq!(found, [SocketAddr::from(SocketAddrV6::new(address, 80, 0, zone))]);
        }
    }

    #[test]
    fn zone_is_remembered_and_not_part_of_the_url() {
        for (url, without) in [
            ("http://u:p@[fe80::a%25lo]:80/f%25?x#[y%]", "http://u:p@[fe80::a]:80/f%25?x#[y%]"),
            ("ftp://[fe80::a%lo]", "ftp://[fe80::a]"),
            ("[fe80::b%2577]:80", "[fe80::b]:80"),
            ("http://h/[fe80::a%25lo]", "http://h/[fe80::a%25lo]"),
            ("http://[fe80::a]/%25", "http://[fe80::a]/%25"),
        ] {
            assert_eq!(without_zone(url).unwrap(), without);
        }
        let zone = |text: &str| match socket_address(text.parse().unwrap(), 1) {
            SocketAddr::V6(address) => address.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        assert_eq!((zone("fe80::b"), zone("fe80::c"), zone("127.0.0.1")), (77, 0, 0));
        assert_ne!(zone("fe80::a"), 0);
        for url in
            ["http://[fe80::b%2578]/", "http://[fe80::d%25no-such]/", "http://[h%25lo]/", "http://[%]/"]
        {
            assert!(without_zone(url).is_err(), "{url}");
        }
    }
}
