//! Cookies from a file in Netscape's format and from servers, and their selection for a request
//! (RFC 6265, section 5).

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use super::http::HeaderField;

/// The most cookies that servers may add to a jar.
const MAX_SET: usize = 1000;
/// The longest name and value of a cookie that a server sets, together.
const MAX_LENGTH: usize = 4096;

/// Cookies of several servers. Each request carries only those of its server.
///
/// `Debug` hides the values, which are credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CookieJar {
    cookies: Vec<Cookie>,
    /// The number of cookies that servers have set.
    set: usize,
}

#[derive(Clone, PartialEq, Eq)]
struct Cookie {
    /// The domain in lower case, without a leading dot.
    domain: String,
    /// Whether the cookie is also sent to subdomains.
    has_subdomains: bool,
    path: String,
    /// Whether the cookie is sent over TLS only.
    secure: bool,
    /// The time of expiry; `None` for a session cookie, which is valid as long as the file exists.
    expires: Option<SystemTime>,
    name: String,
    value: String,
    /// Whether a server has set the cookie, in place of one of this name that was given.
    by_server: bool,
}

/// The properties of a request that select its cookies.
#[derive(Debug, Clone, Copy)]
pub struct CookieScope<'a> {
    /// The host; an IPv6 address is in brackets.
    pub host: &'a str,
    /// The path, beginning with `/`.
    pub path: &'a str,
    /// Whether the request is encrypted.
    pub is_encrypted: bool,
}

/// The content of a cookie file.
#[derive(Debug)]
pub struct CookieFile {
    /// The cookies of the file.
    pub jar: CookieJar,
    /// The numbers of the lines that are neither a cookie nor a comment.
    pub skipped: Vec<usize>,
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cookies", self.cookies.len())
    }
}

impl CookieJar {
    /// Parses a file in Netscape's format, as written by browser extensions, `curl -c` and `wget
    /// --save-cookies`: seven fields per line, separated by tabs.
    pub fn parse(text: &[u8]) -> CookieFile {
        let mut file = CookieFile { jar: Self::default(), skipped: Vec::new() };
        for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let http_only = line.strip_prefix(b"#HttpOnly_");
            if http_only.is_none() && (line.starts_with(b"#") || line.trim_ascii().is_empty()) {
                continue;
            }
            match std::str::from_utf8(http_only.unwrap_or(line)).ok().and_then(cookie) {
                Some(cookie) => file.jar.cookies.push(cookie),
                None => file.skipped.push(number),
            }
        }
        file
    }

    /// Adds the cookies of another file.
    pub fn extend(&mut self, other: Self) {
        self.cookies.extend(other.cookies);
    }

    /// Applies a Set-Cookie field of an answer to a request to `scope` at the time `now` (RFC 6265,
    /// section 5.3); ignores a cookie that the server may not set.
    pub fn set(&mut self, field: &str, scope: CookieScope<'_>, now: SystemTime) {
        let Some(cookie) = set_cookie(field, scope, now) else { return };
        let is_same =
            |c: &Cookie| (&c.name, &c.domain, &c.path) == (&cookie.name, &cookie.domain, &cookie.path);
        let is_over = cookie.expires.is_some_and(|expires| expires <= now);
        match self.cookies.iter().position(is_same) {
            // What was set over TLS is not replaced in clear.
            Some(at) if self.cookies[at].secure && !scope.is_encrypted => {}
            Some(at) if is_over => _ = self.cookies.remove(at),
            Some(at) => self.cookies[at] = cookie,
            None if is_over || self.set >= MAX_SET => {}
            None => {
                self.set += 1;
                self.cookies.push(cookie);
            }
        }
    }

    /// Returns whether the jar holds no cookie.
    pub fn is_empty(&self) -> bool {
        self.cookies.is_empty()
    }

    /// Returns the Cookie header of a request to `scope` at the time `now`: the cookies of `given`
    /// except those that the server has set since, then those of the host and path, the longest
    /// path first; `None` if there are none.
    pub fn field(&self, scope: CookieScope<'_>, now: SystemTime, given: &[&str]) -> Option<HeaderField> {
        let mut own: Vec<_> = self.cookies.iter().filter(|cookie| cookie.is_for(scope, now)).collect();
        own.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let is_set = |pair: &str| {
            own.iter().any(|cookie| cookie.by_server && pair.split('=').next() == Some(cookie.name.as_str()))
        };
        let given = given.iter().flat_map(|text| text.split(';')).map(|pair| pair.trim_matches([' ', '\t']));
        let given = given.filter(|pair| !pair.is_empty() && !is_set(pair)).map(str::to_owned);
        let shown = own.iter().map(|cookie| match cookie.name.as_str() {
            "" => cookie.value.clone(),
            name => format!("{name}={}", cookie.value),
        });
        let pairs: Vec<_> = given.chain(shown).collect();
        // Neither the cookies of a jar nor those of a header that is sent contain control
        // characters.
        if pairs.is_empty() { None } else { HeaderField::new("Cookie", &pairs.join("; ")).ok() }
    }
}

impl Cookie {
    fn is_for(&self, scope: CookieScope<'_>, now: SystemTime) -> bool {
        let host = canonical(scope.host);
        let path_matches = scope
            .path
            .strip_prefix(self.path.as_str())
            .is_some_and(|rest| rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/'));
        (host == self.domain || (self.has_subdomains && is_below(&host, &self.domain)))
            && path_matches
            && (!self.secure || scope.is_encrypted)
            && self.expires.is_none_or(|expires| expires > now)
    }

    /// Returns whether the cookie is what the prefix of its name promises (RFC 6265bis, section
    /// 4.1.3).
    fn keeps_prefix(&self) -> bool {
        let begins = |prefix: &str| {
            self.name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        let is_of_host = !self.has_subdomains && self.path == "/";
        match (begins("__Host-"), begins("__Secure-")) {
            (true, _) => self.secure && is_of_host,
            (_, true) => self.secure,
            _ => true,
        }
    }
}

/// Returns a host in lower case, without brackets and a trailing dot.
fn canonical(host: &str) -> String {
    host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase()
}

/// Returns whether `host` is a subdomain of `domain`; an address has none, nor has a domain under
/// which anyone may register.
fn is_below(host: &str, domain: &str) -> bool {
    let is_public =
        psl::suffix(domain.as_bytes()).is_none_or(|suffix| suffix.as_bytes() == domain.as_bytes());
    let below = host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    below && !is_public && host.parse::<IpAddr>().is_err()
}

/// Parses a Set-Cookie field; `None` if the server of `scope` may not set the cookie.
fn set_cookie(field: &str, scope: CookieScope<'_>, now: SystemTime) -> Option<Cookie> {
    let mut parts = field.split(';').map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (name.trim_matches([' ', '\t']), value.trim_matches([' ', '\t']))
    });
    let (name, value) = parts.next()?;
    let is_clean = |text: &str| !text.chars().any(char::is_control);
    if name.is_empty() || name.len() + value.len() > MAX_LENGTH || !is_clean(name) || !is_clean(value) {
        return None;
    }
    let host = canonical(scope.host);
    // RFC 6265, section 5.1.4.
    let directory = scope.path.rsplit_once('/').map_or("/", |(directory, _)| directory);
    let mut cookie = Cookie {
        domain: host.clone(),
        has_subdomains: false,
        path: if directory.is_empty() { "/" } else { directory }.to_owned(),
        secure: false,
        expires: None,
        name: name.to_owned(),
        value: value.to_owned(),
        by_server: true,
    };
    let mut age = None;
    for (name, value) in parts {
        match name.to_ascii_lowercase().as_str() {
            "domain" => {
                cookie.domain = canonical(value.trim_start_matches('.'));
                cookie.has_subdomains = !cookie.domain.is_empty();
            }
            "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
            "secure" => cookie.secure = true,
            "max-age" => age = value.parse::<i64>().ok().or(age),
            "expires" => {
                // Old servers write "Wed, 21-Oct-2015 07:28:00 GMT".
                let date = value.replace('-', " ");
                cookie.expires = httpdate::parse_http_date(value).or(httpdate::parse_http_date(&date)).ok();
            }
            _ => {}
        }
    }
    if let Some(age) = age {
        let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
        cookie.expires = now.checked_add(age);
    }
    if cookie.domain.is_empty() {
        cookie.domain.clone_from(&host);
    }
    let may_set = host == cookie.domain || is_below(&host, &cookie.domain);
    (may_set && (scope.is_encrypted || !cookie.secure) && cookie.keeps_prefix()).then_some(cookie)
}

/// Parses a line: domain, subdomains included, path, TLS only, expiry in seconds since 1970, name,
/// value.
fn cookie(line: &str) -> Option<Cookie> {
    // Programs in Python write True and False.
    let flag = |text: &str| text.to_ascii_lowercase().parse().ok();
    let fields: Vec<_> = line.splitn(7, '\t').collect();
    let (value, fields) = match &fields[..] {
        [fields @ .., value] if fields.len() == 6 => (*value, fields),
        // curl omits an empty value.
        fields if fields.len() == 6 => ("", fields),
        _ => return None,
    };
    let domain = fields[0].trim_start_matches('.').trim_matches(['[', ']']).to_ascii_lowercase();
    let expires = fields[4].split('.').next()?.parse::<i64>().ok()?;
    let is_clean = |text: &str| !text.chars().any(|c| c.is_control() || c == ';');
    if domain.is_empty() || !fields[2].starts_with('/') || !is_clean(fields[5]) || !is_clean(value) {
        return None;
    }
    // Chrome's extensions write -1 for a session cookie, most other programs 0.
    let expires = u64::try_from(expires).ok().filter(|seconds| *seconds > 0);
    let expires =
        expires.and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    let cookie = Cookie {
        domain,
        has_subdomains: flag(fields[1])?,
        path: fields[2].to_owned(),
        secure: flag(fields[3])?,
        expires,
        name: fields[5].to_owned(),
        value: value.to_owned(),
        by_server: false,
    };
    cookie.keeps_prefix().then_some(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn scope(url: &str) -> CookieScope<'_> {
        let (scheme, rest) = url.split_once("://").unwrap();
        let (host, path) = rest.split_at(rest.find('/').unwrap());
        let port = host.rfind(':').filter(|colon| !host[*colon..].contains(']')).unwrap_or(host.len());
        CookieScope { host: &host[..port], path, is_encrypted: scheme == "https" }
    }

    fn sent(file: &str, url: &str, now: SystemTime) -> Option<String> {
        let jar = CookieJar::parse(file.as_bytes()).jar;
        jar.field(scope(url), now, &[]).map(|field| field.value().to_owned())
    }

    #[test]
    fn request_carries_the_cookies_of_its_host_path_and_transport() {
        let file = "# Netscape HTTP Cookie File\r\n\r\n\
            .example.org\tTrue\t/\tFalse\t0\tall\t1\r\n\
            www.example.org\tFALSE\t/\tFALSE\t0\tone\t2\n\
            #HttpOnly_example.org\tTRUE\t/data\tTRUE\t4000000000\tsecure\ta=b\n\
            example.org\tTRUE\t/data/x\tFALSE\t0\tdeep\n\
            com\tTRUE\t/\tFALSE\t0\ttop\t3\n\
            127.0.0.1\tFALSE\t/\tFALSE\t-1\tip\t4\n\
            ::1\tFalse\t/\tFALSE\t0.5\tsix\t5\n\
            co.uk\tTRUE\t/\tFALSE\t0\tregistry\t6\n\
            #HttpOnly_p.org\tFALSE\t/\tTRUE\t0\t__Host-a\t7\n\
            p.org\tFALSE\t/\tFALSE\t0\t__Secure-b\t8\n";
        for (url, expected) in [
            ("http://example.org/", Some("all=1")),
            ("http://WWW.Example.org./", Some("all=1; one=2")),
            ("http://sub.www.example.org/", Some("all=1")),
            ("https://example.org/data", Some("secure=a=b; all=1")),
            ("http://example.org/data/", Some("all=1")),
            ("https://example.org/database", Some("all=1")),
            ("https://example.org/data/x/f", Some("deep=; secure=a=b; all=1")),
            ("http://notexample.org/", None),
            ("http://example.org.evil/", None),
            ("http://a.com/", None),
            ("http://com/", Some("top=3")),
            ("http://127.0.0.1:81/f", Some("ip=4")),
            ("http://0.0.127.0.0.1.example/", None),
            ("http://[::1]/", Some("six=5")),
            ("http://co.uk/", Some("registry=6")),
            ("http://a.co.uk/", None),
            ("http://p.org/", None),
            ("https://p.org/", Some("__Host-a=7")),
        ] {
            assert_eq!(sent(file, url, NOW).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn server_sets_cookies_for_itself_and_its_domain() {
        let https = "https://data.example.org/d/f";
        for (field, at, url, expected) in [
            ("a=1", https, "https://data.example.org/d/g", Some("a=1")),
            ("a=1", https, "https://data.example.org/other", None),
            ("a=1; Path=/; HttpOnly", https, "http://data.example.org/", Some("a=1")),
            ("a=1; Path=/", https, "https://www.example.org/", None),
            ("a=1; Path=/; Domain=.Example.org", https, "https://www.example.org/", Some("a=1")),
            ("a=1; Path=/; Domain=org", https, https, None),
            ("a=1; Path=/; Domain=evil.org", https, https, None),
            ("a=1; Path=/; Domain=co.uk", "https://x.co.uk/", "https://y.co.uk/", None),
            ("a=1; Domain=127.0.0.1", "http://127.0.0.1/", "http://127.0.0.1/", Some("a=1")),
            ("a=1; Domain=0.0.1", "http://127.0.0.1/", "http://127.0.0.1/", None),
            ("a=1; Path=/; Secure", https, "http://data.example.org/", None),
            ("a=1; Path=/; Secure", "http://h/", "https://h/", None),
            ("a=1; Max-Age=0", https, https, None),
            ("a=1; Max-Age=5; Expires=Thu, 01-Jan-1970 00:00:00 GMT", https, https, Some("a=1")),
            ("a=1; Expires=Thu, 01-Jan-1970 00:00:00 GMT", https, https, None),
            ("a=\x01", https, https, None),
            ("=1", https, https, None),
            ("__Secure-a=1; Path=/; Secure", https, https, Some("__Secure-a=1")),
            ("__secure-a=1", https, https, None),
            ("__Host-a=1; Secure; Path=/", https, https, Some("__Host-a=1")),
            ("__Host-a=1; Secure; Path=/d", https, https, None),
            ("__Host-a=1; Secure; Path=/; Domain=example.org", https, https, None),
            ("__Host-a=1; Secure; Path=/", "http://h/", "http://h/", None),
        ] {
            let mut jar = CookieJar::default();
            jar.set(field, scope(at), NOW);
            let sent = jar.field(scope(url), NOW, &[]);
            assert_eq!(sent.as_ref().map(HeaderField::value), expected, "{field} of {at} to {url}");
        }
        let mut jar = CookieJar::parse(b"h\tFALSE\t/\tTRUE\t0\ts\tsafe\nh\tFALSE\t/\tFALSE\t0\ta\told\n").jar;
        for field in ["s=forged", "a=new", "b=2", "b=; Max-Age=-1"] {
            jar.set(field, scope("http://h/"), NOW);
        }
        let sent = jar.field(scope("https://h/"), NOW, &["a=given; s=given"]).unwrap();
        assert_eq!(sent.value(), "s=given; s=safe; a=new");
        (0..2 * MAX_SET).for_each(|n| jar.set(&format!("n{n}=1"), scope("http://h/"), NOW));
        assert!(jar.cookies.len() <= MAX_SET + 2);
    }

    #[test]
    fn expired_cookie_is_not_sent_and_given_ones_share_the_header() {
        let file = "h.example\tFALSE\t/\tFALSE\t100\ta\tb\n";
        let at = |seconds| sent(file, "http://h.example/", NOW + Duration::from_secs(seconds));
        assert_eq!((at(99).as_deref(), at(100)), (Some("a=b"), None));
        let jar = CookieJar::parse(b"h.example\tFALSE\t/\tFALSE\t0\ta\tb\n").jar;
        let field = |url: &str| jar.field(scope(url), NOW, &["x=y"]).unwrap();
        assert_eq!(field("http://h.example/").value(), "x=y; a=b");
        assert_eq!(field("http://other/").value(), "x=y");
        assert_eq!(format!("{jar:?}"), "1 cookies");
    }

    #[test]
    fn lines_that_are_not_cookies_are_reported() {
        let file = CookieJar::parse(
            b"h\tFALSE\t/\tFALSE\t0\ta\tb\nnonsense\nh\tyes\t/\tFALSE\t0\ta\tb\nh\tFALSE\tx\tFALSE\t0\ta\tb\n\
              h\tFALSE\t/\tFALSE\tsoon\ta\tb\nh\tFALSE\t/\tFALSE\t0\ta\tb; c=d\nh\tFALSE\t/\tFALSE\t0\ta\t\x01\n\xff\n\
              \tFALSE\t/\tFALSE\t0\ta\tb\n",
        );
        assert_eq!((file.skipped, file.jar.cookies.len()), ((2..=9).collect(), 1));
    }
}
