//! Logins and tokens.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_core::proto::http::{HeaderError, HeaderField};
use longhaul_core::proto::netrc::Login;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// Credentials for an origin; `Debug` hides them.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A user's name and password (Basic, RFC 7617).
    Basic(Login),
    /// A token (Bearer, RFC 6750).
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic(_) => "Basic ***",
            Self::Bearer(_) => "Bearer ***",
        })
    }
}

impl Credentials {
    /// Parses "user:password"; the password may be absent or contain colons.
    pub fn from_login(text: &str) -> Self {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        Self::Basic(Login { user: user.to_owned(), password: password.to_owned() })
    }

    /// Reads the login of a URL, if any.
    pub(crate) fn of_url(url: &Url) -> Option<Self> {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let password = url.password();
        if url.username().is_empty() && password.is_none() {
            return None;
        }
        let password = password.map(decode).unwrap_or_default();
        Some(Self::Basic(Login { user: decode(url.username()), password }))
    }

    /// Formats the credentials as the field `name`: Authorization or Proxy-Authorization.
    pub(crate) fn field(&self, name: &str) -> Result<HeaderField, HeaderError> {
        let value = match self {
            Self::Basic(login) => {
                format!("Basic {}", STANDARD.encode(format!("{}:{}", login.user, login.password)))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        HeaderField::new(name, &value)
    }
}

/// Returns whether requests for a URL can be read on the path: without TLS, and to another host
/// than this one.
pub fn is_cleartext(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "ftp") && !url.host().is_none_or(|host| is_loopback(&host))
}

/// Returns whether a host is this one, independent of name resolution.
pub(crate) fn is_loopback(host: &Host<impl AsRef<str>>) -> bool {
    match host {
        Host::Domain(name) => name.as_ref().trim_end_matches('.').eq_ignore_ascii_case("localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_those_of_a_url_and_written_as_basic_or_bearer() {
        // The example of RFC 7617, section 2.
        let basic = Credentials::from_login("Aladdin:open sesame").field("Authorization").unwrap();
        assert_eq!(basic.value(), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(Credentials::Bearer("t".into()).field("Authorization").unwrap().value(), "Bearer t");
        assert!(Credentials::Bearer("t\r\nX: y".into()).field("Authorization").is_err());
        let of = |url: &str| Credentials::of_url(&url.parse().unwrap());
        assert_eq!(of("http://a%40b:c%3Ad@h/"), Some(Credentials::from_login("a@b:c:d")));
        assert_eq!(of("http://a@h/"), Some(Credentials::from_login("a")));
        assert_eq!(of("http://h/"), None);
        assert!(!format!("{:?}", of("http://a:secret@h/")).contains("secret"));
    }

    #[test]
    fn only_loopback_needs_no_encryption() {
        for (url, expected) in [
            ("http://h/", true),
            ("ftp://10.0.0.1/", true),
            ("http://localhost.evil/", true),
            ("http://127.0.0.1.nip.example/", true),
            ("http://0.0.0.0/", true),
            ("http://[fe80::1]/", true),
            ("https://h/", false),
            ("gsiftp://h/", false),
            ("http://LOCALHOST:81/", false),
            ("http://127.9.9.9/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:127.0.0.1]/", false),
        ] {
            assert_eq!(is_cleartext(&url.parse().unwrap()), expected, "{url}");
        }
    }
}
