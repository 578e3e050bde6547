//! Options of requests: headers and cookies, named like curl's and wget's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use longhaul_core::proto::cookies::CookieJar;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;
use longhaul_engine::source::http::RequestConfig;

/// Options of requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestArgs {
    /// Add a request header; may be given several times
    ///
    /// A redirect to another host gets only those that hold no secret, such as Accept.
    #[arg(short = 'H', long, value_name = "K: V")]
    header: Vec<HeaderField>,

    /// Send cookies to the server of the first URL, as 'a=b; c=d'; without = it names a file as of
    /// --load-cookies
    #[arg(short = 'b', long, value_name = "DATA|FILE")]
    cookie: Vec<String>,

    /// Send the cookies of a file in Netscape's format, as browsers' extensions, curl -c and wget
    /// write it
    ///
    /// Each server gets its own cookies only, after redirects too: by domain, path and expiry, and
    /// those that are secure over TLS only. Cookies that servers set hold for this command.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    load_cookies: Option<PathBuf>,

    /// Send logins, headers and -b to other hosts too that a redirect leads to
    #[arg(long)]
    location_trusted: bool,

    /// Set the User-Agent of requests
    #[arg(short = 'A', long, value_name = "NAME")]
    user_agent: Option<String>,

    /// Set the Referer of requests: the page that links to the URL
    #[arg(short = 'e', long, value_name = "URL")]
    referer: Option<String>,
}

impl RequestArgs {
    /// Returns the contents of requests.
    ///
    /// # Errors
    /// An invalid header, or a file without cookies.
    pub(crate) fn config(&self, cancel: &Cancel) -> anyhow::Result<RequestConfig> {
        let referer = self.referer.as_ref().map(|url| HeaderField::new("Referer", url)).transpose()?;
        // A request has at most one Cookie header (RFC 6265, section 5.4).
        let (cookies, own): (Vec<_>, Vec<_>) = self.header.iter().partition(|header| header.is("cookie"));
        let given = self.cookie.iter().map(String::as_str).filter(|text| text.contains('='));
        let cookies: Vec<_> = cookies.into_iter().map(HeaderField::value).chain(given).collect();
        let cookies = (!cookies.is_empty()).then(|| HeaderField::new("Cookie", &cookies.join("; ")));
        let default = RequestConfig::default();
        Ok(RequestConfig {
            headers: own.into_iter().cloned().chain(referer).chain(cookies.transpose()?).collect(),
            cookies: self.jar(cancel)?.map(Arc::new),
            location_trusted: self.location_trusted,
            user_agent: self.user_agent.clone().unwrap_or(default.user_agent),
        })
    }

    /// Returns whether a header is secret.
    pub(crate) fn has_secrets(&self) -> bool {
        let is_secret = |header: &HeaderField| header.is("authorization") || header.is("cookie");
        self.header.iter().any(is_secret) || self.cookie.iter().any(|text| text.contains('='))
    }

    /// Reads the cookie files.
    fn jar(&self, cancel: &Cancel) -> anyhow::Result<Option<CookieJar>> {
        let of_cookie = self.cookie.iter().filter(|text| !text.contains('=')).map(Path::new);
        let mut all: Option<CookieJar> = None;
        for path in self.load_cookies.as_deref().into_iter().chain(of_cookie) {
            let jar = read_cookies(path, cancel)
                .with_context(|| format!("cannot use the cookies in {}", path.display()))?;
            all.get_or_insert_default().extend(jar);
        }
        Ok(all)
    }
}

/// Reads a file of cookies.
///
/// # Errors
/// The file is unreadable, or no line is a cookie.
fn read_cookies(path: &Path, cancel: &Cancel) -> anyhow::Result<CookieJar> {
    /// Larger than any browser's cookie store.
    const LONGEST: Bytes = Bytes::mib(16);
    let file = CookieJar::parse(&input_file::read(path, LONGEST, cancel)?);
    match file.skipped.first() {
        Some(_) if file.jar.is_empty() => {
            bail!(
                "no line is a cookie in Netscape's format: domain, TRUE or FALSE, path, TRUE or FALSE, expiry, name, value, with tabs between"
            )
        }
        Some(line) => {
            let (lines, path) = (file.skipped.len(), path.display());
            tracing::warn!("{path}: {lines} lines are no cookies and are left out, the first is line {line}");
        }
        None => {}
    }
    Ok(file.jar)
}
