//! `longhaul queue add`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use longhaul_agent::api::TransferList;
use longhaul_agent::client::{Client, ClientError};
use longhaul_agent::request::{StreamsWish, TransferRequest};
use longhaul_agent::transfer::TransferKind;
use longhaul_core::proto::metalink::MAX_DOCUMENT;
use longhaul_core::units::Rate;

use crate::commands::agent;
use crate::token_file;

/// How often an addition is sent that no agent has answered.
const TRIES: usize = 5;
/// How long to wait before it is sent again: the socket of an agent that is killed still connects for a moment.
const RETRY: Duration = Duration::from_millis(100);

/// What to transfer, and how.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// The files: URLs, or metalinks (.meta4); with --put, paths and last where to
    #[arg(required = true, value_name = "URL|FILE.meta4")]
    operands: Vec<String>,

    /// Sends: the operands are files or directories, and last the URL to put them to
    #[arg(long, conflicts_with_all = ["mirror", "checksum", "output", "recursive"])]
    put: bool,

    /// Fetches a directory with all below it
    #[arg(short, long, conflicts_with_all = ["mirror", "checksum"])]
    recursive: bool,

    /// Where to put it: a file, or a directory that exists or ends in / [default: the directory of the agent's settings]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,

    /// Another URL of the file; may be given several times
    #[arg(long, value_name = "URL")]
    mirror: Vec<String>,

    /// What the file's checksum must be: md5, sha1, sha256, sha512 or blake3, and the hex digits
    #[arg(long, value_name = "ALG:HEX")]
    checksum: Option<String>,

    /// A further request header; may be given several times
    #[arg(long, value_name = "K: V")]
    header: Vec<String>,

    /// A file with a bearer token for the server
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// How many connections to use
    #[arg(long, value_name = "auto|N", default_value = "auto", value_parser = streams)]
    streams: StreamsWish,

    /// How evenly, and how fast, the server is to send
    #[arg(long, value_name = "auto|off|RATE")]
    pace: Option<String>,

    /// The highest rate, as in 500Mbit or 60MB/s
    #[arg(long, value_name = "RATE")]
    limit: Option<Rate>,

    /// The higher, the sooner it runs
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i64,

    /// When to run, in seconds since 1970
    #[arg(long, value_name = "TIME")]
    at: Option<i64>,

    /// Waits until it is resumed
    #[arg(long)]
    paused: bool,

    /// Shows the transfers until they have ended
    #[arg(long)]
    watch: bool,
}

fn streams(text: &str) -> Result<StreamsWish, String> {
    match text.parse() {
        _ if text == "auto" => Ok(StreamsWish::Auto),
        Ok(n) => Ok(StreamsWish::Fixed(n)),
        Err(_) => Err("write auto or a number".to_owned()),
    }
}

impl AddArgs {
    pub(super) fn watches(&self) -> bool {
        self.watch
    }

    /// Adds the transfers. Where the agent ends meanwhile, nothing is added twice: each request has a key.
    pub(super) async fn send(&self, client: &Client) -> anyhow::Result<TransferList> {
        let mut added = TransferList { transfers: Vec::new() };
        for (number, request) in self.requests()?.into_iter().enumerate() {
            let list: TransferList = match request {
                Addition::Metalink(document) => client.post_metalink("/api/v1/transfers", document).await?,
                Addition::Request(request) => {
                    let request = TransferRequest { key: Some(format!("{}-{number}", key())), ..*request };
                    post(client, &request).await?
                }
            };
            added.transfers.extend(list.transfers);
        }
        Ok(added)
    }

    fn requests(&self) -> anyhow::Result<Vec<Addition>> {
        let common = self.common()?;
        if self.put {
            let Some((url, paths)) = self.operands.split_last().filter(|(_, paths)| !paths.is_empty()) else {
                bail!(std::io::Error::new(
                    std::io::ErrorKind::InvalidInput,
                    "--put needs paths, and last the URL to put them to"
                ));
            };
            let paths = paths.iter().map(|path| absolute(Path::new(path))).collect::<anyhow::Result<_>>()?;
            let request =
                TransferRequest { kind: TransferKind::Put, paths, url: Some(url.clone()), ..common };
            return Ok(vec![Addition::Request(Box::new(request))]);
        }
        let of_operand = |operand: &String| {
            if !operand.contains("://")
                && [".meta4", ".metalink"].iter().any(|suffix| operand.ends_with(suffix))
            {
                return metalink(Path::new(operand)).map(Addition::Metalink);
            }
            let urls = std::iter::once(operand).chain(&self.mirror).cloned().collect();
            let kind = if self.recursive { TransferKind::Tree } else { TransferKind::Get };
            Ok(Addition::Request(Box::new(TransferRequest { kind, urls, ..common.clone() })))
        };
        self.operands.iter().map(of_operand).collect()
    }

    fn common(&self) -> anyhow::Result<TransferRequest> {
        let token = self.token.as_ref().map(|file| {
            token_file::read(file).with_context(|| format!("cannot read the token in {}", file.display()))
        });
        Ok(TransferRequest {
            output: self.output.as_deref().map(absolute).transpose()?,
            checksum: self.checksum.clone(),
            headers: self.header.clone(),
            token: token.transpose()?,
            streams: self.streams,
            pace: self.pace.clone(),
            limit_bps: self.limit.map(Rate::as_bits_per_sec),
            priority: self.priority,
            at: self.at,
            paused: self.paused,
            ..TransferRequest::default()
        })
    }
}

/// Sends a request until an agent has answered: one that is killed is started again. The request's key keeps it from being added twice.
async fn post(client: &Client, request: &TransferRequest) -> anyhow::Result<TransferList> {
    let mut tries = TRIES;
    loop {
        let error = match client.post("/api/v1/transfers", request).await {
            Err(error @ (ClientError::Connection(_) | ClientError::NotRunning { .. })) if tries > 1 => error,
            other => return Ok(other?),
        };
        tracing::info!("{error}");
        tries -= 1;
        tokio::time::sleep(RETRY).await;
        agent::start(&agent::paths()?, None, false)?;
    }
}

/// What is sent to the agent.
enum Addition {
    Request(Box<TransferRequest>),
    Metalink(Vec<u8>),
}

/// Makes a path absolute, for the agent runs elsewhere; one that ends in / still does.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let mut absolute =
        std::path::absolute(path).with_context(|| format!("cannot make {} absolute", path.display()))?;
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir() {
        absolute.push("");
    }
    Ok(absolute)
}

fn metalink(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::io::Read;
    let mut document = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MAX_DOCUMENT.get() + 1).read_to_end(&mut document));
    read.with_context(|| format!("cannot read the metalink {}", path.display()))?;
    Ok(document)
}

/// Returns a text that no other command uses.
fn key() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}
