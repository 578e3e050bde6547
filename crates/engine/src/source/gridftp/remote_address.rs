//! The parts of an FTP URL: a server, a path, and possibly a login.

use longhaul_core::proto::netrc::Login;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::error::FtpError;
use crate::source::default_port;
use crate::source::http::{Credentials, SafeUrl};

/// The protocol of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    /// FTP, or GridFTP without security.
    Ftp,
    /// FTP within TLS, which the client requests (RFC 4217).
    Ftps,
    /// GridFTP with GSI.
    GsiFtp,
}

/// A file or a directory on an FTP server.
#[derive(Debug, Clone)]
pub(super) struct RemoteAddress {
    pub(super) scheme: Scheme,
    pub(super) host: Host<String>,
    pub(super) port: u16,
    /// The path as sent to the server.
    pub(super) path: Vec<u8>,
    /// Whether the path is that of a directory.
    pub(super) is_directory: bool,
    /// The login within the URL.
    pub(super) login: Option<Login>,
    /// The URL without secrets, for messages.
    pub(super) shown: String,
}

impl RemoteAddress {
    /// Parses the URL of a file.
    ///
    /// The path of an `ftp://` URL is relative to the directory of the login, and absolute if it
    /// starts with `%2F` or a second slash (RFC 1738, section 3.2.2). The path of a `gsiftp://` URL
    /// is absolute, as in globus-url-copy, and relative after `/~/`. For anonymous users see
    /// [`Self::make_absolute`].
    pub(super) fn of(url: &Url) -> Result<Self, FtpError> {
        let address = Self::of_any(url)?;
        if address.path.is_empty() || address.path.ends_with(b"/") {
            let why = "it names a directory; name a file, or use -r";
            return Err(FtpError::url(&address.shown, why));
        }
        Ok(address)
    }

    /// Parses the URL of a directory; an empty path means the directory of the login.
    pub(super) fn of_directory(url: &Url) -> Result<Self, FtpError> {
        let mut address = Self::of_any(url)?;
        while address.path.len() > 1 && address.path.ends_with(b"/") {
            address.path.pop();
        }
        if address.path.is_empty() {
            address.path.push(b'.');
        }
        Ok(Self { is_directory: true, ..address })
    }

    fn of_any(url: &Url) -> Result<Self, FtpError> {
        let fail = |why| FtpError::url(&SafeUrl::of(url).to_string(), why);
        let scheme = match url.scheme() {
            "ftp" => Scheme::Ftp,
            "ftps" => Scheme::Ftps,
            "gsiftp" => Scheme::GsiFtp,
            _ => return Err(fail("its scheme is not one of FTP")),
        };
        // The URL parser does not parse the host of a scheme unknown to the URL standard.
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| fail("it names no host"))?;
        let host = Host::parse(host).map_err(|_| fail("it names no valid host"))?;
        let port = default_port(url).ok_or_else(|| fail("it names no port"))?;
        let path = url.path().strip_prefix('/').unwrap_or(url.path());
        // RFC 1738: `;type=` selects the transfer type, which is always image here.
        let path = path.rsplit_once(";type=").map_or(path, |(path, _)| path);
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let path = match scheme {
            Scheme::Ftp | Scheme::Ftps => decoded,
            Scheme::GsiFtp => {
                decoded.strip_prefix(b"~/").map_or_else(|| [b"/", &decoded[..]].concat(), <[u8]>::to_vec)
            }
        };
        let login = match Credentials::of_url(url) {
            Some(Credentials::Basic(login)) => Some(login),
            _ => None,
        };
        let shown = SafeUrl::of(url).to_string();
        Ok(Self { scheme, host, port, path, is_directory: false, login, shown })
    }

    /// Makes the path absolute: the directory of an anonymous login is the root, except on GridFTP
    /// servers without a jail; globus-url-copy takes every path as absolute.
    pub(super) fn make_absolute(&mut self) {
        if self.scheme != Scheme::GsiFtp && !self.path.starts_with(b"/") {
            self.path.insert(0, b'/');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_urls() {
        let of = |url: &str| RemoteAddress::of(&url.parse().unwrap());
        for (url, port, path) in [
            ("ftp://h/a/b%20c", 21, "a/b c"),
            ("ftp://h:2121//etc/x", 2121, "/etc/x"),
            ("ftps://h/x", 21, "x"),
            ("ftp://h/%2Fetc/x;type=i", 21, "/etc/x"),
            ("gsiftp://h/data/f", 2811, "/data/f"),
            ("gsiftp://h:1/~/f", 1, "f"),
        ] {
            let address = of(url).unwrap();
            assert_eq!((address.port, address.path.as_slice()), (port, path.as_bytes()), "{url}");
        }
        for url in ["ftp://h/", "ftp://h/d/", "gsiftp://h", "gsiftp:/f"] {
            assert!(of(url).is_err(), "{url} names no file");
        }
        assert_eq!(of("gsiftp://127.0.0.1/f").unwrap().host, of("ftp://127.0.0.1/f").unwrap().host);
        let address = of("ftp://ann:s%40cret@h/f").unwrap();
        let login = address.login.unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("ann", "s@cret"));
        assert!(!address.shown.contains("cret"));
    }

    #[test]
    fn directory_path_has_no_trailing_slash() {
        for (url, path) in [
            ("ftp://h", "."),
            ("ftp://h/", "."),
            ("ftp://h/a/b/", "a/b"),
            ("ftp://h//", "/"),
            ("ftp://h/%2Fd/", "/d"),
            ("gsiftp://h/", "/"),
            ("gsiftp://h/d/", "/d"),
            ("gsiftp://h/~/", "."),
        ] {
            let address = RemoteAddress::of_directory(&url.parse().unwrap()).unwrap();
            assert_eq!(address.path, path.as_bytes(), "{url}");
        }
    }
}
