//! The replies to PASV and EPSV: the address at which the server accepts data connections (RFC 959, RFC 2428).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use thiserror::Error;

use super::Reply;

/// The reason why a passive reply cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PassiveError {
    /// The command was refused, or the reply contains no address.
    #[error("the server named no address for data connections: {0}")]
    NoAddress(String),
    /// The address is not that of the control connection's host: a server could direct the client to attack another
    /// host.
    #[error(
        "the server named {named} for data connections, but it is {server}; connections to another host are refused"
    )]
    OtherHost {
        /// The address in the reply.
        named: IpAddr,
        /// The control connection's peer.
        server: IpAddr,
    },
}

/// Parses the reply 227 to PASV; `server` is the peer of the control connection.
///
/// # Errors
/// [`PassiveError`] for any other reply, for port 0, and for the address of another host.
pub fn parse_pasv(reply: &Reply, server: IpAddr) -> Result<SocketAddr, PassiveError> {
    let found = (reply.code == 227).then(|| reply.lines.iter().find_map(|line| find_comma_address(line)));
    let address = found.flatten().ok_or_else(|| no_address(reply))?;
    of_server(address, server)
}

/// Parses the reply 229 to EPSV. It contains only a port; the address is `server`.
///
/// # Errors
/// [`PassiveError::NoAddress`] for any other reply and for port 0.
pub fn parse_epsv(reply: &Reply, server: IpAddr) -> Result<SocketAddr, PassiveError> {
    let found = (reply.code == 229).then(|| reply.lines.iter().find_map(|line| bar_port(line)));
    let port = found.flatten().ok_or_else(|| no_address(reply))?;
    Ok(SocketAddr::new(server, port))
}

fn no_address(reply: &Reply) -> PassiveError {
    PassiveError::NoAddress(reply.to_string())
}

/// Refuses an address other than `server`; an IPv4 address may be written as an IPv6 one.
fn of_server(address: SocketAddr, server: IpAddr) -> Result<SocketAddr, PassiveError> {
    let named = address.ip();
    let same = named.to_canonical() == server.to_canonical();
    // `server` is returned because it includes the scope that a link-local address needs.
    if same {
        Ok(SocketAddr::new(server, address.port()))
    } else {
        Err(PassiveError::OtherHost { named, server })
    }
}

/// Finds `h,h,h,h,p,p` in the text of a reply, with or without parentheses (RFC 1123, section 4.1.2.6: search for
/// digits).
fn find_comma_address(line: &str) -> Option<SocketAddr> {
    let mut words = line.split(|c: char| !c.is_ascii_digit() && c != ',');
    words.find_map(|word| whole_comma_address(word.trim_matches(',')))
}

/// Parses a text that consists of `h,h,h,h,p,p`.
fn whole_comma_address(text: &str) -> Option<SocketAddr> {
    let octet = |text: &str| {
        let digits = (1..=3).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u8>().ok()).flatten()
    };
    let octets: Option<Vec<u8>> = text.split(',').take(7).map(octet).collect();
    let [a, b, c, d, high, low] = octets?.try_into().ok()?;
    let port = u16::from_be_bytes([high, low]);
    (port > 0).then(|| SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port))
}

/// Finds `(|||port|)`, with any delimiter (RFC 2428, section 3).
fn bar_port(line: &str) -> Option<u16> {
    let (_, inside) = line.rsplit_once('(')?;
    let (inside, _) = inside.split_once(')')?;
    let delimiter = inside.chars().next().filter(char::is_ascii_graphic)?;
    let mut fields = inside.split(delimiter);
    let empty = fields.by_ref().take(3).all(str::is_empty);
    let port = port(fields.next()?)?;
    (empty && fields.next() == Some("") && fields.next().is_none()).then_some(port)
}

fn port(text: &str) -> Option<u16> {
    super::number(text).and_then(|port| port.try_into().ok()).filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(port: u16) -> SocketAddr {
        SocketAddr::new(SERVER, port)
    }

    #[test]
    fn addresses_of_known_servers_are_parsed() {
        for text in [
            "Entering Passive Mode (127,0,0,1,24,131).",
            "Entering Passive Mode (127,0,0,1,24,131)",
            "Entering Passive Mode 127,0,0,1,24,131",
            "=127,0,0,1,24,131",
            "a, 2 (b), 127,0,0,1,24,131,",
        ] {
            assert_eq!(parse_pasv(&Reply::of(227, &[text]), SERVER), Ok(at(6275)), "{text}");
        }
        for text in ["Entering Extended Passive Mode (|||6275|)", "(!!!6275!)", "x (y) (|||6275|)."] {
            assert_eq!(parse_epsv(&Reply::of(229, &[text]), SERVER), Ok(at(6275)), "{text}");
        }
    }

    #[test]
    fn replies_without_an_address_or_with_that_of_another_host_are_refused() {
        let pasv = "(127,0,0,1,0,0) (127,0,0,256,1,1) (127,0,0,1,1) (127,0,0,1,1,1,1)  (,,,,,)";
        for text in pasv.split(' ') {
            let parsed = parse_pasv(&Reply::of(227, &[text]), SERVER);
            assert!(matches!(parsed, Err(PassiveError::NoAddress(_))), "{text}");
        }
        let epsv = "(|||0|) (|||65536|) (||||) (|||1) (|1|2|3|) |||7| (|||+7|) () (|||7|8|)";
        for text in epsv.split(' ') {
            let parsed = parse_epsv(&Reply::of(229, &[text]), SERVER);
            assert!(matches!(parsed, Err(PassiveError::NoAddress(_))), "{text}");
        }
        assert!(parse_pasv(&Reply::of(500, &["(127,0,0,1,1,1)"]), SERVER).is_err());
        let other = Reply::of(227, &["(10,0,0,1,24,131)"]);
        let named: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(parse_pasv(&other, SERVER), Err(PassiveError::OtherHost { named, server: SERVER }));
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let address = parse_pasv(&Reply::of(227, &["(127,0,0,1,1,0)"]), mapped);
        assert_eq!(address, Ok(SocketAddr::new(mapped, 256)));
    }
}
