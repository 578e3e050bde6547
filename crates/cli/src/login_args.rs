//! Options of logins, and of the trust between client and server.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{
    ClientCertificate, ClientConfig, Credentials, KeyPin, LoginConfig, NetrcFile, NetrcUse, SafeUrl,
    TlsConfig, is_cleartext,
};
use url::Url;

use crate::{password, secret_file};

/// Options of logins.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logins")]
pub(crate) struct LoginArgs {
    /// Log in under a name; the password is asked for on the terminal. ~/.netrc and the URL may
    /// hold a login too
    ///
    /// NAME:PASSWORD is taken as well, with a warning: other users of this host can read it. A
    /// password may be empty: NAME:
    #[arg(short, long, value_name = "NAME", conflicts_with = "token")]
    user: Option<String>,

    /// Read the password of --user from a file
    #[arg(long, value_name = "FILE", requires = "user", value_hint = ValueHint::FilePath)]
    password_file: Option<PathBuf>,

    /// Send a bearer token, which a file holds
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token: Option<PathBuf>,

    /// Send the login of ~/.netrc with the first request, without waiting until the server asks for
    /// it (401)
    #[arg(short, long)]
    netrc: bool,

    /// Read logins from this file in place of ~/.netrc
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    netrc_file: Option<PathBuf>,

    /// Send logins and tokens over http:// and ftp:// too, where any host on the path can read them
    ///
    /// Without it they are refused unless URL and connection are of loopback. Headers with secrets,
    /// and a proxy's login, only cause a warning.
    #[arg(long)]
    allow_cleartext: bool,
}

/// Options of the trust between client and server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trust")]
pub(crate) struct TrustArgs {
    /// Trust further certificates in PEM: of authorities, or of the server itself
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cacert: Option<PathBuf>,

    /// Trust a server whose public key has this SHA-256, as sha256//BASE64 or in hexadecimal, and
    /// no other; may be given several times
    ///
    /// The certificate's authority, names and dates do not matter then.
    #[arg(long = "pin", value_name = "SHA256")]
    pins: Vec<KeyPin>,

    /// Show this certificate to a server that requests one: PEM, with its chain
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cert: Option<PathBuf>,

    /// Read the private key of --cert from this file: PEM, unencrypted; without it the key is in
    /// the certificate's file
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,

    /// Trust any server: any host on the path can read and change everything
    #[arg(short = 'k', long)]
    insecure: bool,

    /// Encrypt the data of gsiftp:// too, and refuse URLs and servers that move data in clear
    ///
    /// Without it gsiftp:// authenticates both ends and encrypts the commands, but not the data.
    /// https:// and ftps:// always encrypt.
    #[arg(long)]
    pub(crate) encrypt: bool,
}

/// Reads the bearer token of `--token`.
pub(crate) fn bearer_token(file: &Path, cancel: &Cancel) -> anyhow::Result<String> {
    secret_file::read_token(file, cancel)
        .with_context(|| format!("cannot read the token in {}", file.display()))
}

impl LoginArgs {
    /// Returns the logins, with the environment's .netrc if no other is given; prompts for a
    /// password if needed.
    ///
    /// # Errors
    /// An unreadable file, or no terminal for the prompt.
    pub(crate) fn config(&self, usual: NetrcUse, cancel: &Cancel) -> anyhow::Result<LoginConfig> {
        let credentials = match (&self.user, &self.token) {
            (Some(login), _) => Some(Credentials::from_login(&self.login(login, cancel)?)),
            (None, Some(file)) => Some(Credentials::Bearer(bearer_token(file, cancel)?)),
            (None, None) => None,
        };
        if let Some(file) = &self.netrc_file {
            // The default file may be missing, a named one may not.
            std::fs::metadata(file)
                .with_context(|| format!("cannot read the logins in {}", file.display()))?;
        }
        let netrc = self.netrc_file.as_ref().map(NetrcFile::at).or_else(|| usual.file.clone());
        let read = |netrc: NetrcFile| {
            let shown = netrc.path().display().to_string();
            netrc.with_pipe_read(cancel).with_context(|| format!("cannot read the logins in {shown}"))
        };
        Ok(LoginConfig {
            credentials,
            netrc: NetrcUse { file: netrc.map(read).transpose()?, at_once: self.netrc, ..usual },
            allow_cleartext: self.allow_cleartext,
        })
    }

    /// Returns the login with its password: from the file, from the option, or from the terminal.
    fn login(&self, user: &str, cancel: &Cancel) -> anyhow::Result<String> {
        if let Some(file) = &self.password_file {
            let password = secret_file::read_password(file, cancel)
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
        if !std::io::stderr().is_terminal() || !std::io::stdin().is_terminal() {
            bail!(
                "there is no terminal to ask for the password of {user}: use --password-file FILE or ~/.netrc"
            );
        }
        Ok(format!("{user}:{}", password::read(&format!("Password of {user}: "))?))
    }

    /// Warns if a header with a secret is sent to the server of `url` in clear.
    pub(crate) fn warn_of_cleartext(&self, url: &Url) {
        if !self.allow_cleartext && is_cleartext(url) {
            tracing::warn!(
                "{} gets the Authorization or Cookie header unencrypted: use https://, or permit it with --allow-cleartext",
                SafeUrl::of(url)
            );
        }
    }

    /// Refuses to send --user or --token to the server of `url` in clear.
    pub(crate) fn check_cleartext(&self, url: &Url) -> anyhow::Result<()> {
        let given = self.user.is_some() || self.token.is_some();
        if given { self.refuse_cleartext(url) } else { Ok(()) }
    }

    /// Refuses to send the login within `url` in clear.
    pub(crate) fn check_cleartext_login(&self, url: &Url) -> anyhow::Result<()> {
        let is_secret = url.password().is_some() || !url.username().is_empty();
        let is_anonymous = url.scheme() == "ftp" && matches!(url.username(), "" | "anonymous" | "ftp");
        if is_secret && !is_anonymous { self.refuse_cleartext(url) } else { Ok(()) }
    }

    fn refuse_cleartext(&self, url: &Url) -> anyhow::Result<()> {
        if self.allow_cleartext || !is_cleartext(url) {
            return Ok(());
        }
        bail!(
            "will not send a login or a token to {} unencrypted, where any host on the path can read it: use https:// or ftps://, or \
             permit it with --allow-cleartext",
            SafeUrl::of(url)
        )
    }
}

impl TrustArgs {
    /// Applies these options to client settings.
    pub(crate) fn applied(&self, config: ClientConfig) -> ClientConfig {
        if self.insecure {
            tracing::warn!("--insecure: servers are trusted without proof; --pin or --cacert prove them");
        }
        ClientConfig {
            tls: TlsConfig {
                ca_file: self.cacert.clone(),
                pins: self.pins.clone(),
                certificate: self.cert.clone().map(|cert| ClientCertificate {
                    key: self.key.clone().unwrap_or_else(|| cert.clone()),
                    cert,
                }),
                insecure: self.insecure,
            },
            encrypt: self.encrypt,
            ..config
        }
    }
}
