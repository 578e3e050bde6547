//! The replies to PASV and EPSV: the address at which the server accepts data connections (RFC 959,
//! RFC 2428).

use std::net::{IpAddr, SocketAddr};

use super::Reply;
use crate::proto::{Malformed, number};

/// Parses the reply 227 to PASV. Only its port is used; the address is `server`, the peer of the
/// control connection.
///
/// Servers behind a NAT name their private address, others 0.0.0.0. Another host is never connected
/// to, because a server could direct the client to attack it.
///
/// # Errors
/// [`Malformed`] for any other reply and for port 0.
pub fn parse_pasv(reply: &Reply, server: IpAddr) -> Result<SocketAddr, Malformed> {
    let found = (reply.code == 227).then(|| reply.lines.iter().find_map(|line| find_comma_port(line)));
    let port = found.flatten().ok_or_else(|| no_address(reply))?;
    // `server` includes the scope that a link-local address needs.
    Ok(SocketAddr::new(server, port))
}

/// Parses the reply 229 to EPSV. It contains only a port; the address is `server`.
///
/// # Errors
/// [`Malformed`] for any other reply and for port 0.
pub fn parse_epsv(reply: &Reply, server: IpAddr) -> Result<SocketAddr, Malformed> {
    let found = (reply.code == 229).then(|| reply.lines.iter().find_map(|line| bar_port(line)));
    let port = found.flatten().ok_or_else(|| no_address(reply))?;
    Ok(SocketAddr::new(server, port))
}

fn no_address(reply: &Reply) -> Malformed {
    Malformed::new(format!("the server named no address for data connections: {reply}"))
}

/// Finds `h,h,h,h,p,p` in the text of a reply, with or without parentheses and blanks (RFC 1123,
/// section 4.1.2.6: search for digits); returns the port.
fn find_comma_port(line: &str) -> Option<u16> {
    let line = line.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    let mut words = line.split(|c: char| !c.is_ascii_digit() && c != ',');
    words.find_map(|word| comma_port(word.trim_matches(',')))
}

/// Parses a text that consists of `h,h,h,h,p,p`; returns the port.
fn comma_port(text: &str) -> Option<u16> {
    let octet = |text: &str| Some(text).filter(|text| text.len() <= 3).and_then(number);
    let octets: Option<Vec<u8>> = text.split(',').take(7).map(octet).collect();
    let [_, _, _, _, high, low] = octets?.try_into().ok()?;
    Some(u16::from_be_bytes([high, low])).filter(|port| *port > 0)
}

/// Finds `(|||port|)`, with any delimiter (RFC 2428, section 3).
fn bar_port(line: &str) -> Option<u16> {
    let (_, inside) = line.rsplit_once('(')?;
    let (inside, _) = inside.split_once(')')?;
    let delimiter = inside.chars().next().filter(char::is_ascii_graphic)?;
    let mut fields = inside.split(delimiter);
    let empty = fields.by_ref().take(3).all(str::is_empty);
    let port = number(fields.next()?).filter(|port| *port > 0)?;
    (empty && fields.next() == Some("") && fields.next().is_none()).then_some(port)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

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
            "Entering Passive Mode (127, 0, 0, 1, 24, 131)",
            "Port 5: 127 ,0, 0 ,1,24,131 .",
            // A server behind a NAT, one that does not know its address, and one that names another
            // host.
            "(10,0,0,5,24,131)",
            "(0,0,0,0,24,131)",
            "(192,0,2,1,24,131)",
        ] {
            assert_eq!(parse_pasv(&Reply::of(227, &[text]), SERVER), Ok(at(6275)), "{text}");
        }
        for text in ["Entering Extended Passive Mode (|||6275|)", "(!!!6275!)", "x (y) (|||6275|)."] {
            assert_eq!(parse_epsv(&Reply::of(229, &[text]), SERVER), Ok(at(6275)), "{text}");
        }
    }

    #[test]
    fn replies_without_an_address_are_refused() {
        let pasv = "(127,0,0,1,0,0) (127,0,0,256,1,1) (127,0,0,1,1) (127,0,0,1,1,1,1)  (,,,,,)";
        for text in pasv.split(' ') {
            assert!(parse_pasv(&Reply::of(227, &[text]), SERVER).is_err(), "{text}");
        }
        let epsv = "(|||0|) (|||65536|) (||||) (|||1) (|1|2|3|) |||7| (|||+7|) () (|||7|8|)";
        for text in epsv.split(' ') {
            assert!(parse_epsv(&Reply::of(229, &[text]), SERVER).is_err(), "{text}");
        }
        assert!(parse_pasv(&Reply::of(500, &["(127,0,0,1,1,1)"]), SERVER).is_err());
        let mapped: IpAddr = "::ffff:127.0.0.1".parse().unwrap();
        let address = parse_pasv(&Reply::of(227, &["(127,0,0,1,1,0)"]), mapped);
        assert_eq!(address, Ok(SocketAddr::new(mapped, 256)));
    }
}
