//! What the target of a request addresses, before it is routed.

use std::net::{IpAddr, Ipv6Addr};

use longhaul_core::probe::message::{MEASURE_PATH, STREAM_PATH};
use longhaul_core::proto::http::RequestHead;

/// Returns whether the query has an `upload` parameter, valid or not.
pub(crate) fn names_upload(target: &str) -> bool {
    target.split_once('?').is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("upload=")))
}

/// Returns whether a request asks for the paused uploads of a directory.
pub(crate) fn lists_uploads(request: &RequestHead) -> bool {
    request.method() == "GET" && request.target().ends_with("/?uploads")
}

/// Returns whether a request is for the measurement endpoint.
pub(crate) fn is_measurement(request: &RequestHead) -> bool {
    let path = without_query(request);
    match request.method() {
        "GET" => path.strip_prefix(MEASURE_PATH).is_some_and(|rest| matches!(rest, "" | "/stream" | "/udp")),
        "PUT" => path == STREAM_PATH,
        _ => false,
    }
}

/// Returns whether the Host of a request is a host, with a port or without (RFC 9110, section 7.2);
/// a request of HTTP/1.0 may have none.
pub(crate) fn has_valid_host(request: &RequestHead) -> bool {
    request.header("host").is_none_or(is_host)
}

fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => (None, port),
        Some(_) => return false,
        None => {
            let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (Some(name), port)
        }
    };
    // Unreserved characters, percent-encoded ones and delimiters (RFC 3986, section 3.2.2).
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(fits) && !name.starts_with('.') && !name.contains("..")
    };
    let is_port = |port: &str| port.is_empty() || port.parse::<u16>().is_ok_and(|_| !port.starts_with('+'));
    name.is_none_or(is_name) && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// Returns whether a request is for one of these hosts, by its Host, and by its target where that
/// is a URL. A page of another site whose name was made to lead here (DNS rebinding) has its own
/// name there.
pub(crate) fn is_for(request: &RequestHead, hosts: &[String]) -> bool {
    let is_known = |name: &str| hosts.iter().any(|host| is_same_host(host, name));
    let absolute = request.target().split_once("://").filter(|_| !request.target().starts_with('/'));
    let authority = absolute.map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    request.header("host").is_some_and(is_known) && authority.is_none_or(is_known)
}

/// Returns whether a Host, with a port or without, is of this host: a name, or an address with
/// brackets or without.
fn is_same_host(host: &str, shown: &str) -> bool {
    let bare = |text: &str| {
        text.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
    };
    let port = shown.rfind(':').filter(|&at| !shown[at..].contains(']')).unwrap_or(shown.len());
    let (host, shown) = (bare(host), bare(&shown[..port]));
    let addresses = host.parse::<IpAddr>().ok().zip(shown.parse::<IpAddr>().ok());
    addresses.map_or(host == shown, |(host, shown)| host == shown)
}

/// Returns the path of a target.
pub(crate) fn without_query(request: &RequestHead) -> &str {
    request.target().split('?').next().unwrap_or_default()
}

/// Leaves out of a request's target what may hold a key: a query, and a login before a host
/// (`http://ann:secret@host/f`, `ann:secret@host:80`).
pub(crate) fn without_secrets(target: &str) -> String {
    let (place, query) = match target.split_once('?') {
        Some((place, _)) => (place, "?..."),
        None => (target, ""),
    };
    let (scheme, rest) = place.find("://").map_or(("", place), |at| place.split_at(at + 3));
    let host = rest.find('/').unwrap_or(rest.len());
    let rest = rest[..host].rfind('@').map_or(rest, |login| &rest[login + 1..]);
    format!("{scheme}{rest}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_a_name_or_an_address_with_a_port_or_without() {
        for host in
            ["h", "a.b_c-d.", "h:80", "h:", "127.0.0.1:1", "[::1]", "[::1]:80", "xn--bcher-kva.example"]
        {
            assert!(is_host(host), "{host}");
        }
        let odd = "|:80|.|.h|a..b|a b|a/b|a@b|h:x|h:+1|h:65536|h:80:80|[::1|[h]|[::1]x|::1|h?|h#|h\\|<h>|ä|h\t|\"h\"";
        for host in odd.split('|') {
            assert!(!is_host(host), "{host}");
        }
    }

    #[test]
    fn only_listed_hosts_are_answered() {
        let hosts = ["Files.example".to_owned(), "10.0.0.5".to_owned(), "[2001:db8::1]".to_owned()];
        for (target, host, is_listed) in [
            ("/", "files.EXAMPLE.:8080", true),
            ("/?u=http://evil/", "10.0.0.5", true),
            ("/", "[2001:db8:0::1]:80", true),
            ("http://files.example/f", "files.example", true),
            ("http://evil.example/f", "files.example", false),
            ("http://files.example/f", "evil.example", false),
            ("/", "evil.example", false),
            ("/", "a.files.example", false),
            ("/", "files.example.evil", false),
            ("/", "127.0.0.1:8080", false),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            let request = RequestHead::parse(text.as_bytes()).unwrap().unwrap().0;
            assert_eq!(is_for(&request, &hosts), is_listed, "{target} {host}");
        }
        let without = RequestHead::parse(b"GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().0;
        assert!(!is_for(&without, &hosts));
    }

    #[test]
    fn a_target_is_reported_without_its_secrets() {
        for (target, reported) in [
            ("/f", "/f"),
            ("/f?key=secret", "/f?..."),
            ("/a@b/c", "/a@b/c"),
            ("/f?to=http://ann:secret@h/", "/f?..."),
            ("http://h:80/f", "http://h:80/f"),
            ("http://ann:secret@h/f", "http://h/f"),
            ("HTTP://ann:sec@ret@h", "HTTP://h"),
            ("http://ann:secret@h?key=secret", "http://h?..."),
            ("http://h/a@b", "http://h/a@b"),
            ("ann:secret@h:80", "h:80"),
            ("", ""),
            ("-", "-"),
        ] {
            assert_eq!(without_secrets(target), reported, "{target}");
        }
    }
}
