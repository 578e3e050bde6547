//! The options of all commands that send requests: connections, requests, logins, trust.

use clap::Args;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::job::TransferOptions;
use longhaul_engine::source::http::ClientConfig;
use url::Url;

use crate::connect_args::ConnectArgs;
use crate::login_args::{LoginArgs, TrustArgs};
use crate::request_args::RequestArgs;

/// Options of requests to servers.
#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    #[command(flatten)]
    requests: RequestArgs,

    #[command(flatten)]
    pub(crate) logins: LoginArgs,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

impl ClientArgs {
    /// Returns the client settings; `cancel` interrupts the reading of files.
    pub(crate) fn config(&self, cancel: &Cancel) -> anyhow::Result<ClientConfig> {
        let config = self.trust.applied(self.connect.applied(ClientConfig::from_env())?);
        let requests = self.requests.config(cancel)?;
        let logins = self.logins.config(config.logins.netrc.clone(), cancel)?;
        Ok(ClientConfig { requests, logins, ..config })
    }

    /// Returns the options of requests that move no file.
    pub(crate) fn options(&self, cancel: &Cancel) -> anyhow::Result<TransferOptions> {
        let client = self.config(cancel)?;
        let (retries, stall) = (self.connect.retries, self.connect.stall_timeout);
        Ok(TransferOptions { retries, stall, client, ..TransferOptions::default() })
    }

    /// Refuses to send a login or a token to the server of `url` in clear, except to loopback;
    /// warns about secret headers.
    ///
    /// # Errors
    /// The reason and the alternative.
    pub(crate) fn check_cleartext(&self, url: &Url) -> anyhow::Result<()> {
        if self.requests.has_secrets() {
            self.logins.warn_of_cleartext(url);
        }
        self.logins.check_cleartext(url)
    }
}
