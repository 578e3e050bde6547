//! `longhaul queue add`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use longhaul_agent::api::TransferList;
use longhaul_agent::client::{Client, ClientError};
use longhaul_agent::request::{self, Endpoints, TransferRequest};
use longhaul_agent::transfer::TransferKind;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::metalink::MAX_DOCUMENT;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;

use crate::commands::agent;
use crate::login_args::bearer_token;
use crate::url_text;

/// Attempts to send a request that no agent has answered.
const ATTEMPTS: usize = 5;
/// Delay between attempts: the socket of a killed agent still accepts connections for a moment.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The maximum number of workers of a plan that are added at once: each has a log in the plan's
/// directory.
const MAX_WORKERS: i64 = 1000;

/// Operands and options of `queue add`.
#[derive(Debug, Args)]
pub(super) struct AddArgs {
    /// The files: URLs, or metalinks (.meta4); with --put, paths and last where to; with --plan,
    /// plans
    #[arg(required = true, value_name = "URL|FILE.meta4")]
    operands: Vec<String>,

    /// Send: the operands are files or directories, and last the URL to put them to
    #[arg(long, conflicts_with_all = ["mirror", "checksum", "output", "if_exists", "recursive"])]
    put: bool,

    /// Execute plans: the operands are directories that longhaul plan has written
    #[arg(long, conflicts_with_all = ["put", "mirror", "checksum", "output", "if_exists", "recursive"])]
    plan: bool,

    /// Add this many workers of a plan, which is 1 by default; each agent of a farm runs one of
    /// them at a time
    #[arg(short = 'N', long, value_name = "N", requires = "plan", value_parser = clap::value_parser!(u32).range(1..=MAX_WORKERS))]
    hosts: Option<u32>,

    /// Fetch a directory with all below it
    #[arg(short, long, conflicts_with_all = ["mirror", "checksum", "if_exists"])]
    recursive: bool,

    /// Use another URL of the file too; may be given several times
    #[arg(long, value_name = "URL")]
    mirror: Vec<String>,

    #[command(flatten)]
    request: TransferRequest,

    /// Send a bearer token, which a file holds
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Show the transfers until they have ended
    #[arg(long)]
    watch: bool,
}

impl AddArgs {
    pub(super) fn watches(&self) -> bool {
        self.watch
    }

    /// Adds the transfers. Each request has a key, so that a retry after the agent's end adds
    /// nothing twice.
    pub(super) async fn send(&self, client: &Client) -> anyhow::Result<TransferList> {
        let (mut requests, key) = (self.requests()?, key());
        for (number, request) in requests.iter_mut().enumerate() {
            request.key = Some(format!("{key}-{number}"));
        }
        post(client, &requests).await
    }

    fn requests(&self) -> anyhow::Result<Vec<TransferRequest>> {
        let common = self.common()?;
        if self.put {
            let Some((url, paths)) = self.operands.split_last().filter(|(_, paths)| !paths.is_empty()) else {
                bail!(usage("--put needs paths, and last the URL to put them to"));
            };
            let paths = paths.iter().map(|path| absolute(Path::new(path))).collect::<anyhow::Result<_>>()?;
            let endpoints = Endpoints { url: Some(url.clone()), paths, ..Endpoints::default() };
            return Ok(vec![TransferRequest { kind: TransferKind::Put, endpoints, ..common }]);
        }
        if self.plan {
            let hosts = self.hosts.unwrap_or(1) as usize;
            let of_plan = |path: &String| {
                let plan = Some(absolute(Path::new(path))?);
                let endpoints = Endpoints { plan, ..Endpoints::default() };
                Ok(vec![TransferRequest { kind: TransferKind::Plan, endpoints, ..common.clone() }; hosts])
            };
            let requests: anyhow::Result<Vec<_>> = self.operands.iter().map(of_plan).collect();
            return Ok(requests?.concat());
        }
        let of_operand = |operand: &String| {
            if !operand.contains("://")
                && [".meta4", ".metalink"].iter().any(|suffix| operand.ends_with(suffix))
            {
                return metalink(Path::new(operand));
            }
            url_text::parse(operand).map_err(|why| usage(format!("'{operand}': {why}")))?;
            let urls = std::iter::once(operand).chain(&self.mirror).cloned().collect();
            let kind = if self.recursive { TransferKind::Tree } else { TransferKind::Get };
            let endpoints = Endpoints { urls, ..Endpoints::default() };
            Ok(vec![TransferRequest { kind, endpoints, ..common.clone() }])
        };
        let requests: Vec<_> = self.operands.iter().map(of_operand).collect::<anyhow::Result<_>>()?;
        Ok(requests.into_iter().flatten().collect())
    }

    /// Returns the output path. Several files need a directory: in one file they would replace each
    /// other.
    fn output(&self) -> anyhow::Result<Option<PathBuf>> {
        let mut output = self.request.target.output.as_deref().map(absolute).transpose()?;
        if let Some(output) = output.as_mut().filter(|_| self.operands.len() > 1) {
            output.push("");
        }
        Ok(output)
    }

    fn common(&self) -> anyhow::Result<TransferRequest> {
        let mut request = self.request.clone();
        request.access.token =
            self.token.as_ref().map(|file| bearer_token(file, &Cancel::new())).transpose()?;
        request.target.output = self.output()?;
        Ok(request)
    }
}

/// Sends requests, of which all or none are added, until an agent has answered; restarts a killed
/// agent. The requests' keys prevent duplicates.
async fn post(client: &Client, requests: &[TransferRequest]) -> anyhow::Result<TransferList> {
    let mut tries = ATTEMPTS;
    loop {
        let error = match client.post("/api/v1/transfers", &requests).await {
            Err(error @ (ClientError::Connection(_) | ClientError::NotRunning { .. })) if tries > 1 => error,
            other => return Ok(other?),
        };
        tracing::info!("{error}");
        tries -= 1;
        tokio::time::sleep(RETRY_DELAY).await;
        agent::start(&agent::paths()?, &[])?;
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Usage, message)
}

/// Makes a path absolute, as the agent has another working directory; keeps a trailing /.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let mut absolute =
        std::path::absolute(path).with_context(|| format!("cannot make {} absolute", path.display()))?;
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir() {
        absolute.push("");
    }
    Ok(absolute)
}

fn metalink(path: &Path) -> anyhow::Result<Vec<TransferRequest>> {
    let document = input_file::read(path, MAX_DOCUMENT, &Cancel::new());
    let document = document.with_context(|| format!("cannot read the metalink {}", path.display()))?;
    request::of_metalink(&document).map_err(|error| usage(format!("{}: {error}", path.display())).into())
}

/// Returns a unique text.
fn key() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_nanos())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        add: AddArgs,
    }

    #[test]
    fn several_files_never_go_to_one() {
        let output = |line: &[&str]| {
            let requests = Line::parse_from([&["add"], line].concat()).add.requests().unwrap();
            requests[0].target.output.clone().unwrap().into_os_string()
        };
        assert_eq!(output(&["http://h/a", "-o", "/nowhere/f"]), "/nowhere/f");
        assert_eq!(output(&["http://h/a", "--mirror", "http://m/a", "-o", "/nowhere/f"]), "/nowhere/f");
        assert_eq!(output(&["http://h/a", "http://h/b", "-o", "/nowhere/f"]), "/nowhere/f/");
    }
}
