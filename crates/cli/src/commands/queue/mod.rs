//! `longhaul queue`: sends requests to the agent over its Unix socket, and starts it on demand.

mod add;
mod show;
mod watch;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use longhaul_agent::api::{FreshLink, LoginUrl, Place, TransferList, TransferPatch};
use longhaul_agent::client::Client;
use longhaul_agent::queue::TransferPage;
use longhaul_agent::transfer::{Transfer, TransferState};
use longhaul_core::units::Rate;

use crate::commands::agent;
use crate::stdout;

/// Options of `queue`.
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,

    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum QueueCommand {
    /// Add transfers; they run in the background and survive a reboot
    Add(Box<add::AddArgs>),
    /// List transfers
    List {
        /// List transfers in one state only
        #[arg(long, value_name = "STATE")]
        state: Option<TransferState>,
    },
    /// Pause transfers; partial files are kept
    Pause(Ids),
    /// Resume transfers
    Resume(Ids),
    /// Give up transfers; their partial files stay
    Cancel(Ids),
    /// Try transfers again that failed or were given up
    Retry(Ids),
    /// Remove ended transfers from the list; their files stay, also partial ones
    Remove {
        #[command(flatten)]
        ids: Ids,
        /// Delete their partial files too; complete files stay
        #[arg(long)]
        files: bool,
    },
    /// Give a transfer a fresh link, and resume the partial file
    Refresh {
        /// The transfer
        id: i64,
        /// The fresh link
        url: String,
        /// Send a request header for it; may be given several times, and replaces earlier headers
        #[arg(long, value_name = "K: V")]
        header: Vec<String>,
    },
    /// Move a transfer in the queue
    Move {
        /// The transfer
        id: i64,
        /// Put it before this transfer [default: the end of the queue]
        #[arg(long, value_name = "ID")]
        before: Option<i64>,
    },
    /// Change the priority or the limit of a transfer
    Set {
        /// The transfer
        id: i64,
        /// Set the priority: the higher, the sooner it runs
        #[arg(long, allow_negative_numbers = true)]
        priority: Option<i64>,
        /// Set the highest rate, as 500Mbit, or none
        #[arg(long, value_name = "RATE|none", value_parser = limit)]
        limit: Option<Limit>,
    },
    /// Show transfers until they have ended or are paused; the exit code is that of the first that
    /// fails, or 75 if one is paused
    Watch {
        /// The transfers [default: all]
        ids: Vec<i64>,
    },
    /// Open the dashboard in the browser, and print its URL, which works once and within a minute
    Open {
        /// Print the URL only
        #[arg(long)]
        print: bool,
    },
}

/// Ids of transfers.
#[derive(Debug, Args)]
struct Ids {
    /// The numbers of transfers, as longhaul queue list shows them
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
}

/// `--limit`.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<Rate>);

fn limit(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        rate => Rate::with_unit(rate).map(|rate| Limit(Some(rate))),
    }
}

/// Runs the command; starts an agent if none is running.
pub(crate) fn run(args: &QueueArgs) -> anyhow::Result<ExitCode> {
    let paths = agent::paths()?;
    agent::start(&paths, &[])?;
    let client = Client::new(paths.socket());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(dispatch(args, &client))
}

async fn dispatch(args: &QueueArgs, client: &Client) -> anyhow::Result<ExitCode> {
    let json = args.json;
    match &args.command {
        QueueCommand::Add(add) => {
            let added: TransferList = add.send(client).await?;
            show::added(&added.transfers, json);
            if add.watches() {
                let ids: Vec<_> = added.transfers.iter().map(|transfer| transfer.id).collect();
                return watch::watch(client, &ids, json).await;
            }
        }
        QueueCommand::List { state } => list(client, *state, json).await?,
        QueueCommand::Pause(ids) => steer(client, ids, "pause", json).await?,
        QueueCommand::Resume(ids) => steer(client, ids, "resume", json).await?,
        QueueCommand::Cancel(ids) => steer(client, ids, "cancel", json).await?,
        QueueCommand::Retry(ids) => steer(client, ids, "retry", json).await?,
        QueueCommand::Remove { ids: Ids { ids }, files } => {
            let files = if *files { "?files=true" } else { "" };
            for id in ids {
                client.delete(&format!("/api/v1/transfers/{id}{files}")).await?;
            }
        }
        QueueCommand::Refresh { id, url, header } => {
            let headers = (!header.is_empty()).then(|| header.clone());
            let body = FreshLink { url: url.clone(), headers };
            let transfer: Transfer = client.post(&format!("/api/v1/transfers/{id}/refresh"), &body).await?;
            show::changed(&transfer, json);
        }
        QueueCommand::Move { id, before } => {
            let body = Place { before: *before };
            let transfer: Transfer = client.post(&format!("/api/v1/transfers/{id}/move"), &body).await?;
            show::changed(&transfer, json);
        }
        QueueCommand::Set { id, priority, limit } => {
            let limit_bps = limit.map(|Limit(rate)| rate.map(Rate::as_bits_per_sec));
            let body = TransferPatch { priority: *priority, limit_bps };
            let transfer: Transfer = client.patch(&format!("/api/v1/transfers/{id}"), &body).await?;
            show::changed(&transfer, json);
        }
        QueueCommand::Watch { ids } => return watch::watch(client, ids, json).await,
        QueueCommand::Open { print } => {
            let login: LoginUrl = client.get("/api/v1/login").await?;
            stdout::line(&login.url);
            if !print {
                open(&login.url);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends one action for each transfer.
async fn steer(client: &Client, Ids { ids }: &Ids, verb: &str, json: bool) -> anyhow::Result<()> {
    for id in ids {
        let path = format!("/api/v1/transfers/{id}/{verb}");
        let transfer: Transfer = client.post(&path, &serde_json::json!({})).await?;
        show::changed(&transfer, json);
    }
    Ok(())
}

/// Prints all pages of the list.
async fn list(client: &Client, state: Option<TransferState>, json: bool) -> anyhow::Result<()> {
    let state = state.map(|state| format!("&state={state}")).unwrap_or_default();
    let (mut after, mut first) = (String::new(), true);
    loop {
        let page: TransferPage = client.get(&format!("/api/v1/transfers?limit=1000{state}{after}")).await?;
        show::list(&page.transfers, first, json);
        first = false;
        match page.next {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(()),
        }
    }
}

/// Opens a URL in the user's browser; on failure the printed URL remains.
fn open(url: &str) {
    let mut command = std::process::Command::new("xdg-open");
    let quiet = std::process::Stdio::null;
    if let Err(error) = command.arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn() {
        tracing::debug!("cannot start xdg-open: {error}");
    }
}
