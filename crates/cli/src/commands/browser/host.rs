//! `longhaul browser host`: serves the extension's requests over stdin and stdout, by requests to
//! the agent.
//!
//! One thread reads stdin, another writes stdout; each request is a task, so that a slow server
//! delays no other request.

use std::convert::Infallible;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::rc::Rc;
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use longhaul_agent::client::{Client, ClientError};
use longhaul_core::failure::FailureKind;
use longhaul_core::proto::native_messaging::{
    HostReply, HostReplyError, HostRequest, HostRequestKind, LinkRequest, MAX_MESSAGE, encode, message_length,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use super::manifest;
use crate::commands::agent;
use crate::{exit, say};

/// Attempts to have an offer answered: the agent can be killed once.
const OFFER_ATTEMPTS: u32 = 2;
/// The first and the longest wait before the agent's events are requested again.
const RECONNECT_FIRST: Duration = Duration::from_millis(500);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// The number of transfers that are reported after each connect.
const LATEST: usize = 20;

/// Serves until the browser closes stdin.
pub(super) fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    if !manifest::is_our_extension(arguments) {
        let message = "the browser names another extension than Longhaul's: it is not answered";
        return Ok(exit::said(message, FailureKind::Denied));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the native host")?;
    let (messages, output) = (read_stdin(), BrowserOutput::start());
    LocalSet::new().block_on(&runtime, serve(messages, output.clone()))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    mut messages: mpsc::Receiver<anyhow::Result<Vec<u8>>>,
    output: BrowserOutput,
) -> anyhow::Result<()> {
    let client = Rc::new(Client::new(agent::paths()?.socket()).for_downloads());
    while let Some(message) = messages.recv().await {
        let message = message?;
        let request = match HostRequest::parse(&message) {
            Ok(request) => request,
            Err(error) => {
                output.send(&refusal(&message, &error.to_string()));
                continue;
            }
        };
        let (client, output) = (Rc::clone(&client), output.clone());
        tokio::task::spawn_local(async move {
            let result = answer(&client, request.kind, &output).await;
            output.send(&HostReply::new(request.id, result));
        });
    }
    Ok(())
}

/// Replies to a malformed message; without a request id the reply has none.
fn refusal(message: &[u8], reason: &str) -> HostReply {
    let id = serde_json::from_slice::<Value>(message).ok().and_then(|value| value["id"].as_u64());
    HostReply::new(id.unwrap_or_default(), Err(reply_error("bad-request", reason)))
}

fn reply_error(code: &str, message: impl ToString) -> HostReplyError {
    HostReplyError { code: code.to_owned(), message: message.to_string() }
}

async fn answer(
    client: &Client,
    kind: HostRequestKind,
    output: &BrowserOutput,
) -> Result<Value, HostReplyError> {
    if !matches!(kind, HostRequestKind::Offer { .. }) {
        start_agent().await?;
    }
    let result = match kind {
        HostRequestKind::Hello => Ok(json!({ "version": env!("CARGO_PKG_VERSION") })),
        HostRequestKind::Connect { url } => client.post("/api/v1/connections", &json!({ "url": url })).await,
        HostRequestKind::Offer { request, seconds } => return offer(client, request, seconds).await,
        HostRequestKind::Add { request } => client.post("/api/v1/transfers", &request).await,
        HostRequestKind::List { limit } => {
            latest(client, limit).await.map(|mut list| list["transfers"].take())
        }
        HostRequestKind::Pause { transfer } => act(client, transfer, "pause").await,
        HostRequestKind::Resume { transfer } => act(client, transfer, "resume").await,
        HostRequestKind::Cancel { transfer } => act(client, transfer, "cancel").await,
        HostRequestKind::Retry { transfer } => act(client, transfer, "retry").await,
        HostRequestKind::Remove { transfer, files } => {
            client.delete(&format!("/api/v1/transfers/{transfer}?files={files}")).await.map(|()| Value::Null)
        }
        HostRequestKind::OpenFolder { transfer } => {
            let shown: Value =
                client.get(&format!("/api/v1/transfers/{transfer}")).await.map_err(of_client)?;
            return open_folder(shown["path"].as_str().unwrap_or_default());
        }
        HostRequestKind::Refresh { transfer, request } => {
            client.post(&format!("/api/v1/transfers/{transfer}/refresh"), &fresh_link(request)).await
        }
        HostRequestKind::Watch => {
            tokio::task::spawn_local(watch(client.clone(), output.clone()));
            Ok(Value::Null)
        }
    };
    result.map_err(of_client)
}

/// Offers a download. The agent gives an offer up when its connection ends, as it does after
/// `seconds`.
async fn offer(client: &Client, request: LinkRequest, seconds: u8) -> Result<Value, HostReplyError> {
    let mut body = serde_json::to_value(request).map_err(|error| reply_error("bad-request", error))?;
    // An agent that is killed may have accepted the offer: the next one then finds its transfer by
    // the key.
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    body["key"] = json!(format!("offer-{}-{now}", std::process::id()));
    let answer = async {
        let mut attempts = 1;
        loop {
            start_agent().await?;
            match client.post("/api/v1/transfers/offer", &body).await {
                Err(ClientError::Connection(_)) if attempts < OFFER_ATTEMPTS => attempts += 1,
                answer => return answer.map_err(of_client),
            }
        }
    };
    let late = || Err(reply_error("refused", format!("the server has not answered within {seconds} s")));
    timeout(Duration::from_secs(seconds.into()), answer).await.unwrap_or_else(|_| late())
}

/// Starts the agent if none is running, on a blocking thread.
async fn start_agent() -> Result<(), HostReplyError> {
    let started = tokio::task::spawn_blocking(|| agent::start(&agent::paths()?, &[])).await;
    let started = started.map_err(|error| reply_error("no-agent", error))?;
    started.map(drop).map_err(|error| reply_error("no-agent", say::chain(&error)))
}

fn of_client(error: ClientError) -> HostReplyError {
    match &error {
        ClientError::Refused { error: refused, .. } => reply_error(&refused.code, &error),
        _ => reply_error("no-agent", &error),
    }
}

async fn act(client: &Client, transfer: u64, action: &str) -> Result<Value, ClientError> {
    client.post(&format!("/api/v1/transfers/{transfer}/{action}"), &json!({})).await
}

/// Makes a fresh link of a request: the browser's cookies and referrer become headers.
fn fresh_link(request: LinkRequest) -> Value {
    let LinkRequest { urls, mut headers, cookies, referrer, .. } = request;
    for (name, value) in [("Cookie", cookies), ("Referer", referrer)] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            headers.push(format!("{name}: {value}"));
        }
    }
    json!({ "url": urls.first(), "headers": headers })
}

/// Opens the directory of a file in the desktop's file manager.
fn open_folder(path: &str) -> Result<Value, HostReplyError> {
    let path = Path::new(path);
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let quiet = || Stdio::null();
    let opened = Command::new("xdg-open").arg(folder).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    match opened {
        Ok(_) => Ok(Value::Null),
        Err(error) => {
            Err(reply_error("no-opener", format!("cannot run xdg-open {}: {error}", folder.display())))
        }
    }
}

/// Forwards the agent's events until the browser ends. Starts an agent that was killed again; waits
/// for the next one after one that was stopped.
async fn watch(client: Client, output: BrowserOutput) {
    let (mut wait, mut is_stopped) = (RECONNECT_FIRST, false);
    loop {
        let began = Instant::now();
        let Err(error) = forward(&client, &output).await;
        let is_absent = matches!(error, ClientError::NotRunning { .. });
        if !(is_stopped && is_absent) {
            is_stopped = matches!(error, ClientError::Stopped);
            output.send(&json!({ "event": "lost", "message": error.to_string() }));
        }
        wait = if began.elapsed() > RECONNECT_MAX { RECONNECT_FIRST } else { wait };
        sleep(wait).await;
        wait = (2 * wait).min(RECONNECT_MAX);
        if !is_stopped && let Err(error) = start_agent().await {
            output.send(&json!({ "event": "lost", "message": error.message }));
        }
    }
}

async fn forward(client: &Client, output: &BrowserOutput) -> Result<Infallible, ClientError> {
    let mut events = client.events().await?;
    output.send(&json!({ "event": "connected" }));
    send_latest(client, output).await?;
    loop {
        let (name, data) = events.next().await?;
        let Ok(data) = serde_json::from_str::<Value>(&data) else { continue };
        match &name[..] {
            "transfer" => output.send(&json!({ "event": "transfer", "transfer": data })),
            "progress" => output.send(&json!({ "event": "progress", "progress": data })),
            "removed" => output.send(&json!({ "event": "removed", "id": data["id"] })),
            // The agent has left events out.
            "resync" => send_latest(client, output).await?,
            _ => {}
        }
    }
}

/// Sends the latest transfers as events: they may have changed while no events were received.
async fn send_latest(client: &Client, output: &BrowserOutput) -> Result<(), ClientError> {
    let list = latest(client, LATEST).await?;
    for transfer in list["transfers"].as_array().into_iter().flatten() {
        output.send(&json!({ "event": "transfer", "transfer": transfer }));
    }
    Ok(())
}

async fn latest(client: &Client, limit: impl Display) -> Result<Value, ClientError> {
    client.get(&format!("/api/v1/transfers?newest=true&limit={limit}")).await
}

/// The channel to the browser.
#[derive(Clone)]
struct BrowserOutput(blocking::SyncSender<Vec<u8>>);

/// Maximum of queued messages for a browser that does not read.
const MAX_WAITING: usize = 1_000;

impl BrowserOutput {
    fn start() -> Self {
        let (sender, messages) = blocking::sync_channel::<Vec<u8>>(MAX_WAITING);
        std::thread::spawn(move || {
            let mut stdout = io::stdout().lock();
            // A browser that closes its stdout end closes stdin as well.
            messages
                .into_iter()
                .take_while(|message| stdout.write_all(message).and_then(|()| stdout.flush()).is_ok())
                .for_each(drop);
        });
        Self(sender)
    }

    /// Queues a message; drops it if the queue is full.
    fn send(&self, message: &impl Serialize) {
        let encoded = serde_json::to_vec(message).ok().and_then(|json| encode(&json).ok());
        if encoded.is_none_or(|bytes| self.0.try_send(bytes).is_err()) {
            tracing::warn!("a message to the browser was dropped: over {MAX_MESSAGE} bytes, or not read");
        }
    }
}

/// Reads messages on a thread until the browser closes stdin; stops at a truncated or oversized
/// message.
fn read_stdin() -> mpsc::Receiver<anyhow::Result<Vec<u8>>> {
    let (sender, messages) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        loop {
            let message = read_message(&mut stdin).transpose();
            let Some(message) = message else { return };
            let is_last = message.is_err();
            if sender.blocking_send(message).is_err() || is_last {
                return;
            }
        }
    });
    messages
}

/// Reads a message; `None` at the end of the input.
pub(super) fn read_message(from: &mut impl Read) -> anyhow::Result<Option<Vec<u8>>> {
    let mut prefix = [0; 4];
    let mut filled = 0;
    while filled < prefix.len() {
        match from.read(&mut prefix[filled..]).context("cannot read from the browser")? {
            0 if filled == 0 => return Ok(None),
            0 => anyhow::bail!("the browser's message is cut short"),
            n => filled += n,
        }
    }
    let mut body = vec![0; message_length(prefix)?];
    from.read_exact(&mut body).context("the browser's message is cut short")?;
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_link_sends_cookies_as_a_header() {
        let request = json!({ "urls": ["http://h/f"], "cookies": "a=1", "headers": ["X: y"] });
        let request = serde_json::from_value(request).unwrap();
        let expected = json!({ "url": "http://h/f", "headers": ["X: y", "Cookie: a=1"] });
        assert_eq!(fresh_link(request), expected);
    }
}
