//! The options that `get` and `put` have in common.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use console::Term;
use longhaul_core::pace::Pace;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Rate;
use longhaul_engine::passing_digest::Verify;
use longhaul_engine::source::http::{
    ClientCertificate, ClientConfig, Credentials, KeyPin, SafeUrl, Timeouts,
};
use longhaul_scope::record::schema::Side;
use url::{Host, Url};

use crate::connect_args::ConnectArgs;
use crate::record::RecordArgs;
use crate::session::{Reporting, Session};
use crate::values::time;
use crate::{exit, token_file};

/// How to talk to a server, and what to tell the user.
#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    /// A further request header; may be given several times
    #[arg(short = 'H', long, value_name = "K: V")]
    header: Vec<HeaderField>,

    /// How evenly, and how fast, to send: auto finds and follows what the path holds, a rate as 860Mbit bounds it, off leaves it to the congestion control
    ///
    /// get requests the pace from `longhaul serve`. Other servers ignore the request; get then uses several streams.
    #[arg(long, value_name = "auto|off|RATE", default_value = "auto")]
    pub(crate) pace: Pace,

    /// The highest rate, as in 500Mbit or 60MB/s
    #[arg(long, value_name = "RATE", value_parser = limit)]
    pub(crate) limit: Option<Rate>,

    /// Starts over instead of resuming
    #[arg(long)]
    pub(crate) no_resume: bool,

    /// How a digest is verified: computed while the bytes pass, or of the file as read back from the disk
    #[arg(long, value_enum, default_value = "passing")]
    verify: VerifyArg,

    /// Prints one JSON object a line on stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// Prints nothing but errors
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    pub(crate) record: RecordArgs,

    /// Certificates to trust besides the system's, in PEM: of authorities, or of the server itself
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// The SHA-256 of the server's public key, as sha256//BASE64 or in hexadecimal; may be given several times
    ///
    /// A server whose key is one of these is trusted, whatever authority, names and dates its certificate has; any other is refused.
    #[arg(long = "pin", value_name = "SHA256")]
    pins: Vec<KeyPin>,

    /// The certificate to show to a server that requests one, in PEM, with its chain
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// The private key of --cert, in PEM and unencrypted; without it the key is read from the certificate's file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    #[command(flatten)]
    connect: ConnectArgs,

    /// The login for the server; the password is asked for on the terminal. ~/.netrc and the URL may hold one too
    ///
    /// NAME:PASSWORD is taken as well, with a warning: other users of this host can read it. A password may be empty: NAME:
    #[arg(short, long, value_name = "NAME", conflicts_with = "token")]
    user: Option<String>,

    /// The file that holds the password of --user
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,

    /// A file with logins in place of ~/.netrc
    #[arg(long, value_name = "FILE")]
    netrc_file: Option<PathBuf>,

    /// Sends logins and tokens over http:// and ftp:// without a warning
    ///
    /// Any host on the path can read them there. Loopback needs no permission; cookies and logins from ~/.netrc are sent without it.
    #[arg(long)]
    allow_cleartext: bool,

    /// A file with a bearer token for the server
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// How many failures in a row a stream may have
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,

    /// How long to wait for a connection
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
    connect_timeout: Duration,

    /// How long next to nothing may move on a connection before it is taken for dead
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) stall_timeout: Duration,
}

fn limit(text: &str) -> Result<Rate, String> {
    match Rate::with_unit(text)? {
        rate if rate.as_bytes_per_sec() > 0 => Ok(rate),
        _ => Err("at this rate nothing would ever arrive".into()),
    }
}

/// `--verify`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum VerifyArg {
    /// The digest is computed while the transfer runs
    Passing,
    /// The file is read back, which takes longer and finds lost writes
    Disk,
}

impl TransferArgs {
    /// Returns how digests are verified.
    pub(crate) fn verify(&self) -> Verify {
        match self.verify {
            VerifyArg::Passing => Verify::Passing,
            VerifyArg::Disk => Verify::Disk,
        }
    }

    /// Returns how to talk to the server.
    pub(crate) fn client(&self) -> anyhow::Result<ClientConfig> {
        let credentials = match (&self.user, &self.token) {
            (Some(login), _) => Some(Credentials::from_login(&self.login(login)?)),
            (None, Some(file)) => {
                let token = token_file::read(file)
                    .with_context(|| format!("cannot read the token in {}", file.display()))?;
                Some(Credentials::Bearer(token))
            }
            (None, None) => None,
        };
        let environment = self.connect.applied(ClientConfig::from_env())?;
        let referer = self.connect.referer()?;
        Ok(ClientConfig {
            headers: self.header.iter().cloned().chain(referer).collect(),
            credentials,
            netrc: self.netrc_file.clone().or_else(|| environment.netrc.clone()),
            ca_file: self.cacert.clone(),
            pins: self.pins.clone(),
            certificate: self.cert.clone().map(|cert| ClientCertificate {
                key: self.key.clone().unwrap_or_else(|| cert.clone()),
                cert,
            }),
            timeouts: Timeouts {
                connect: self.connect_timeout,
                head: self.stall_timeout,
                ..environment.timeouts
            },
            ..environment
        })
    }

    /// Returns the login with its password: of the file, of the option, or as it is entered on the terminal.
    fn login(&self, user: &str) -> anyhow::Result<String> {
        if let Some(file) = &self.password_file {
            let password = token_file::read(file)
                .with_context(|| format!("cannot read the password in {}", file.display()))?;
            let name = user.split_once(':').map_or(user, |(name, _)| name);
            return Ok(format!("{name}:{password}"));
        }
        match user.split_once(':') {
            Some((_, "")) => return Ok(user.to_owned()),
            Some(_) => {
                tracing::warn!(
                    "other users of this host can read the password in --user: give the name alone, with --password-file or ~/.netrc"
                );
                return Ok(user.to_owned());
            }
            None => {}
        }
        let terminal = Term::stderr();
        if !terminal.is_term() || !std::io::stdin().is_terminal() {
            bail!(
                "there is no terminal to ask for the password of {user}: use --password-file FILE or ~/.netrc"
            );
        }
        terminal.write_str(&format!("Password of {user}: "))?;
        Ok(format!("{user}:{}", terminal.read_secure_line()?))
    }

    /// Warns where --user, --token or an Authorization field goes to the server of `url` in clear, but for loopback.
    pub(crate) fn warn_of_cleartext(&self, url: &Url) {
        let has_field = self.header.iter().any(|header| header.is("authorization"));
        if self.user.is_some() || self.token.is_some() || has_field {
            self.warn_of_cleartext_to(url);
        }
    }

    /// Warns where the login within `url` goes to its server in clear, but for loopback.
    pub(crate) fn warn_of_cleartext_login(&self, url: &Url) {
        if !matches!(url.username(), "" | "anonymous" | "ftp") {
            self.warn_of_cleartext_to(url);
        }
    }

    fn warn_of_cleartext_to(&self, url: &Url) {
        let stays_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => true,
        };
        if !self.allow_cleartext && !stays_here && matches!(url.scheme(), "http" | "ftp") {
            tracing::warn!(
                "{} gets the login or the token unencrypted: use https:// or ftps://, or permit it with --allow-cleartext",
                SafeUrl::of(url)
            );
        }
    }

    /// Returns whether a progress line is drawn.
    pub(crate) fn shows_line(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Begins a session of so many `files`, `None` where that is not known; `what` is for the head of the record, and must hold no secret.
    ///
    /// # Errors
    /// What the program is to exit with; the error has been printed.
    pub(crate) fn begin(&self, side: Side, what: &str, files: Option<usize>) -> Result<Session, exit::Code> {
        let reporting = Reporting {
            json: self.json,
            lines: self.shows_line(),
            results: !self.quiet && !self.json,
            record: &self.record,
        };
        Session::begin(&reporting, side, what, files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_options_that_cannot_work() {
        assert!(limit("1bit").is_err() && limit("10M").is_err() && time("0s").is_err());
        assert!("no colon".parse::<HeaderField>().is_err() && "K: a\r\nb".parse::<HeaderField>().is_err());
    }
}
