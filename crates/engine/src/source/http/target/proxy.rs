//! Chooses a URL's proxy by the user's option or curl's environment variables.

use std::net::IpAddr;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::HeaderField;
use longhaul_core::proto::netrc::Login;
use url::{Host, Url};

use crate::connect::without_zone;
use crate::source::http::authentication::credentials::Credentials;
use crate::source::http::error::HttpError;
use crate::source::http::target::safe_url::SafeUrl;

/// The proxies of the user or the environment; by default none. `Debug` shows variables only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyPolicy {
    http: Option<ProxySetting>,
    https: Option<ProxySetting>,
    exceptions: Vec<String>,
}

/// A proxy as written, and its variable or option.
#[derive(Clone, PartialEq, Eq)]
struct ProxySetting {
    variable: &'static str,
    url: String,
}

impl std::fmt::Debug for ProxyPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |setting: &Option<ProxySetting>| setting.as_ref().map(|s| s.variable);
        write!(f, "ProxyPolicy {{ http: {:?}, https: {:?} }}", name(&self.http), name(&self.https))
    }
}

/// A proxy to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(crate) kind: ProxyKind,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    pub(crate) url: SafeUrl,
    /// The variable or option that sets the proxy.
    pub(crate) variable: &'static str,
    pub(crate) authorization: Option<HeaderField>,
    pub(crate) login: Option<Login>,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Http,
    /// SOCKS 5; names are resolved locally.
    Socks5,
    /// SOCKS 5; the proxy resolves names.
    Socks5h,
}

impl ProxyPolicy {
    /// Uses the proxy `url` except for hosts in `no_proxy`, which is read by `variable`; an empty
    /// URL means no proxy.
    pub fn given(url: &str, variable: impl Fn(&str) -> Option<String>) -> Self {
        let setting = ProxySetting { variable: "--proxy", url: url.to_owned() };
        let setting = Some(setting).filter(|setting| !setting.url.trim().is_empty());
        Self { http: setting.clone(), https: setting, ..Self::from_vars(variable) }
    }

    /// Checks that every proxy is usable.
    ///
    /// # Errors
    /// The first unusable one.
    pub fn check(&self) -> Result<(), HttpError> {
        [&self.http, &self.https].into_iter().flatten().try_for_each(|setting| proxy(setting).map(drop))
    }

    /// Returns whether the proxy is set by the option.
    pub fn is_given(&self) -> bool {
        self.http.as_ref().is_some_and(|setting| setting.variable == "--proxy")
    }

    /// Returns the variable that sets a proxy for all protocols, which FTP cannot use.
    pub fn names_all(&self) -> Option<&'static str> {
        let named = [&self.http, &self.https].into_iter().flatten().map(|setting| setting.variable);
        named.into_iter().find(|name| name.eq_ignore_ascii_case("all_proxy"))
    }

    /// Reads `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` by `variable`, lower case
    /// first.
    ///
    /// HTTP_PROXY in capitals is ignored, as in curl: the client of a CGI script could set it.
    pub fn from_vars(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&'static str]| {
            let set =
                names.iter().find_map(|name| variable(name).map(|url| ProxySetting { variable: name, url }));
            // An empty variable means no proxy.
            set.filter(|setting| !setting.url.trim().is_empty())
        };
        let exceptions = variable("no_proxy").or_else(|| variable("NO_PROXY")).unwrap_or_default();
        Self {
            http: first(&["http_proxy", "all_proxy", "ALL_PROXY"]),
            https: first(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            exceptions: exceptions
                .split(|c: char| c == ',' || c.is_whitespace())
                .filter(|entry| !entry.is_empty())
                .map(str::to_ascii_lowercase)
                .collect(),
        }
    }

    /// Returns the proxy for `url`, if there is one.
    pub(crate) fn for_url(&self, url: &Url) -> Result<Option<Proxy>, HttpError> {
        let setting = if url.scheme() == "https" { &self.https } else { &self.http };
        let Some((setting, host)) = setting.as_ref().zip(url.host()) else { return Ok(None) };
        if self.exceptions.iter().any(|entry| covers(entry, &host)) {
            return Ok(None);
        }
        proxy(setting).map(Some)
    }
}

fn proxy(setting: &ProxySetting) -> Result<Proxy, HttpError> {
    // Its URL is not shown, because it may contain a password.
    let fail = |why| {
        Failure::new(FailureKind::Usage, format!("cannot use the proxy in {}: {why}", setting.variable))
    };
    let text = setting.url.trim();
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = without_zone(&text).ok().and_then(|text| Url::parse(&text).ok());
    let url = url.ok_or_else(|| fail("it is not a URL; write http://host:port"))?;
    let (kind, usual_port) = match url.scheme() {
        "http" => (ProxyKind::Http, 80),
        "socks5" => (ProxyKind::Socks5, 1080),
        // GNOME sets `ALL_PROXY=socks://..`.
        "socks5h" | "socks" => (ProxyKind::Socks5h, 1080),
        _ => return Err(fail("write http://, socks5:// or socks5h://, then host:port").into()),
    };
    // The URL parser treats an address in a SOCKS URL as a name.
    let host = url.host_str().filter(|host| !host.is_empty()).and_then(|host| Host::parse(host).ok());
    let host = host.ok_or_else(|| fail("it names no host; write http://host:port"))?;
    let port = url.port().unwrap_or(usual_port);
    let credentials = Credentials::of_url(&url);
    let authorization = match (&credentials, kind) {
        (Some(credentials), ProxyKind::Http) => Some(credentials.field("Proxy-Authorization")?),
        _ => None,
    };
    let login = match credentials {
        Some(Credentials::Basic(login)) => Some(login),
        _ => None,
    };
    Ok(Proxy { kind, host, port, url: SafeUrl::of(&url), variable: setting.variable, authorization, login })
}

/// Returns whether an entry of no_proxy covers `host`: `*`, a domain and its subdomains, an
/// address, or a network.
fn covers(entry: &str, host: &Host<&str>) -> bool {
    if entry == "*" {
        return true;
    }
    let address: IpAddr = match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let entry = entry.trim_start_matches('.').trim_end_matches('.');
            let above = name.strip_suffix(entry).filter(|_| !entry.is_empty());
            return above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        }
        Host::Ipv4(address) => (*address).into(),
        Host::Ipv6(address) => (*address).into(),
    };
    let (network, bits) = match entry.split_once('/') {
        Some((network, bits)) => (network, bits.parse::<u32>().ok()),
        None => (entry, Some(128)),
    };
    match (network.trim_matches(['[', ']']).parse::<IpAddr>(), bits) {
        (Ok(network), Some(bits)) => same_network(network, address, bits),
        _ => false,
    }
}

/// Returns whether two addresses of one family agree in their first `bits` bits.
fn same_network(a: IpAddr, b: IpAddr, bits: u32) -> bool {
    let agreeing = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    agreeing >= bits.min(if a.is_ipv4() { 32 } else { 128 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(vars: &[(&str, &str)]) -> ProxyPolicy {
        ProxyPolicy::from_vars(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    fn chosen(vars: &[(&str, &str)], url: &str) -> Option<String> {
        policy(vars).for_url(&url.parse().unwrap()).unwrap().map(|p| format!("{}:{}", p.host, p.port))
    }

    #[test]
    fn proxy_is_chosen_by_scheme_and_exceptions_as_curl_does() {
        let vars = [("http_proxy", "p1:3128"), ("HTTPS_PROXY", "http://p2:8080/"), ("all_proxy", "p3:1")];
        for (vars, url, proxy) in [
            (&vars[..], "http://h/", Some("p1:3128")),
            (&vars, "https://h/", Some("p2:8080")),
            (&vars[2..], "https://h/", Some("p3:1")),
            (&[("HTTP_PROXY", "evil:1")], "http://h/", None),
            (&[("http_proxy", ""), ("all_proxy", "p3:1")], "http://h/", None),
            (&[("http_proxy", "http://[::1]:8080")], "http://h/", Some("[::1]:8080")),
        ] {
            assert_eq!(chosen(vars, url).as_deref(), proxy, "{vars:?}, {url}");
        }
        let except =
            |list: &str, url: &str| chosen(&[("all_proxy", "p:1"), ("no_proxy", list)], url).is_none();
        assert!(except("*", "http://h/"));
        for url in ["http://example.org/", "http://a.EXAMPLE.org/", "http://example.org.:81/"] {
            assert!(except("x, .example.org", url) && except("example.org", url), "{url}");
        }
        assert!(!except("example.org", "http://notexample.org/") && !except(".", "http://h/"));
        assert!(except("10.0.0.0/8 ::1", "http://10.9.8.7/") && except("10.0.0.0/8 ::1", "http://[::1]/"));
        assert!(except("192.0.2.1", "http://192.0.2.1/") && !except("192.0.2.1", "http://192.0.2.2/"));
        assert!(except("[fe80::]/10", "http://[fe80::1]/") || except("fe80::/10", "http://[fe80::1]/"));
        assert!(!except("10.0.0.0/x", "http://10.0.0.0/") && !except("0.0.0.1/0", "http://[::1]/"));
    }

    #[test]
    fn option_overrides_the_environment_except_no_proxy() {
        let none = |name: &str| (name == "no_proxy").then(|| "near".to_owned());
        let given = ProxyPolicy::given("socks5h://127.0.0.1", none);
        let found = given.for_url(&"https://far/".parse().unwrap()).unwrap().unwrap();
        let local = Host::Ipv4([127, 0, 0, 1].into());
        assert_eq!((found.kind, found.host, found.port), (ProxyKind::Socks5h, local, 1080));
        assert_eq!(given.for_url(&"http://near/".parse().unwrap()).unwrap(), None);
        let off = ProxyPolicy::given("", |_| Some("http://p".to_owned()));
        assert_eq!(off.for_url(&"http://h/".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn names_the_variable_but_no_secret() {
        for proxy in ["socks4://u:secret@h:1", "https://u:secret@h", "http://"] {
            let vars = [("https_proxy", proxy)];
            let error = policy(&vars).for_url(&"https://h/".parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains("https_proxy") && !error.contains("secret"), "{error}");
        }
        assert!(!format!("{:?}", policy(&[("all_proxy", "http://u:secret@h")])).contains("secret"));
        let proxy =
            policy(&[("http_proxy", "u:p@h")]).for_url(&"http://h/".parse().unwrap()).unwrap().unwrap();
        assert_eq!(proxy.authorization.unwrap().value(), "Basic dTpw");
    }
}
