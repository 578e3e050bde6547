//! The options common to `get` and `put`.

use clap::Args;
use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::proto::http::HeaderField;
use longhaul_core::units::Rate;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::job::{StreamCap, TransferOptions};
use longhaul_engine::rate_limit::RateLimit;
use longhaul_engine::source::http::{ClientConfig, SafeUrl};
use longhaul_engine::verify::Verify;
use url::Url;

use crate::client_args::ClientArgs;
use crate::record::RecordArgs;
use crate::streams_args::{MemoryArgs, StreamsArgs};
use crate::values::{Choice, choice};

/// Options of transfers.
#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    #[command(flatten)]
    pub(crate) streams: StreamsArgs,

    #[command(flatten)]
    memory: MemoryArgs,

    /// Set the highest rate, as 500Mbit or 60MB/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = limit, help_heading = "Speed")]
    pub(crate) limit: Option<Rate>,

    /// Set how evenly, and how fast, to send: auto, off or a rate
    ///
    /// auto finds and follows what the path holds, a rate as 860Mbit bounds it, off leaves it to
    /// the congestion control. get requests the pace from `longhaul serve`. Other servers ignore
    /// the request; get then uses several streams.
    #[arg(long, value_name = "auto|off|RATE", default_value = "auto", allow_hyphen_values = true, value_parser = Pace::with_unit, help_heading = "Speed")]
    pub(crate) pace: Pace,

    /// Start over instead of resuming
    #[arg(long, help_heading = "Files")]
    pub(crate) no_resume: bool,

    /// Choose how a digest is verified: as the bytes pass, or of the file as read back from the
    /// disk
    #[arg(long, default_value = "passing", value_parser = choice(&VERIFY), help_heading = "Integrity")]
    pub(crate) verify: Verify,

    /// Print one JSON object a line on stdout
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) record: RecordArgs,

    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

fn limit(text: &str) -> Result<Rate, String> {
    match Rate::with_unit(text)? {
        rate if rate.as_bytes_per_sec() > 0 => Ok(rate),
        _ => Err("at this rate nothing would ever arrive".into()),
    }
}

/// The values of `--verify`.
const VERIFY: [Choice<Verify>; 2] = [
    ("passing", Verify::Passing, "The digest is computed while the transfer runs"),
    ("disk", Verify::Disk, "The file is read back, which takes longer and finds lost writes"),
];

impl TransferArgs {
    /// Returns the client settings of `get`, whose requests name the pace.
    pub(crate) fn receiving_client(&self, cancel: &Cancel) -> anyhow::Result<ClientConfig> {
        let mut client = self.client.config(cancel)?;
        if self.pace != Pace::Auto && !client.requests.headers.iter().any(|header| header.is(PACE_HEADER)) {
            client.requests.headers.push(HeaderField::new(PACE_HEADER, &self.pace.header())?);
        }
        Ok(client)
    }

    /// Returns the limit of `get`: without a pacing server nothing else enforces the rate of
    /// `--pace`.
    pub(crate) fn receiving_limit(&self) -> Option<Rate> {
        self.limit.into_iter().chain(self.pace.rate()).min()
    }

    /// Warns if the environment's proxy does not apply to one of `urls`.
    pub(crate) fn warn_of_unused_proxy<'u>(config: &ClientConfig, mut urls: impl Iterator<Item = &'u Url>) {
        let Some(variable) = config.proxies.names_all() else { return };
        if let Some(url) = urls.find(|url| matches!(url.scheme(), "ftp" | "ftps" | "gsiftp")) {
            tracing::warn!(
                "{} goes through no proxy: {variable} applies to http:// and https:// only",
                SafeUrl::of(url)
            );
        }
    }

    /// Returns the settings of a transfer in either direction.
    ///
    /// # Errors
    /// Contradictory options of streams.
    pub(crate) fn transfer_options(
        &self,
        limit: Option<Rate>,
        client: ClientConfig,
    ) -> anyhow::Result<TransferOptions> {
        Ok(TransferOptions {
            streams: self.streams.requested()?,
            stream_cap: StreamCap::default(),
            memory: self.memory.memory(),
            sample: self.record.interval(),
            pace: self.pace,
            limit: limit.map(RateLimit::new),
            resume: !self.no_resume,
            retries: self.client.connect.retries,
            stall: self.client.connect.stall_timeout,
            client,
        })
    }
}
