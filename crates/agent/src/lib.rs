//! Longhaul's agent: a persistent queue of transfers with an HTTP API.
//!
//! ```text
//!  longhaul queue --- Unix socket ---.
//!                                    api --> queue --> database (SQLite)
//!  browser --- 127.0.0.1 --- auth --'          |
//!                                            runner --> longhaul_engine (a thread for each transfer), longhaul_farm (plans)
//!                                              '------> events --> server-sent events
//! ```
//!
//! [`agent::run`] serves until a signal; [`client::Client`] is its client.
//!
//! ```
//! use std::{sync::mpsc, thread};
//!
//! use longhaul_agent::agent::{self, AgentOptions};
//! use longhaul_agent::api::TransferList;
//! use longhaul_agent::{client::Client, paths::AgentPaths, transfer::TransferState};
//! use serde_json::json;
//!
//! # let dir = tempfile::tempdir()?;
//! let paths = AgentPaths { state: dir.path().join("state"), runtime: dir.path().join("run") };
//! let client = Client::new(paths.socket());
//! let listen = Some("127.0.0.1:0".parse()?);
//! let options = AgentOptions { paths, listen, aria2_rpc: None, farm: None, exit_code: |_| 1 };
//! let (ready, is_ready) = mpsc::channel();
//! let agent = thread::spawn(move || agent::run(&options, |address| drop(ready.send(address))));
//! is_ready.recv()?;
//!
//! // The agent answers once the transfer is on the disk. A paused transfer connects to no server.
//! let request = json!({ "urls": ["https://server/set.tar"], "paused": true });
//! let runtime = tokio::runtime::Runtime::new()?;
//! let added: TransferList = runtime.block_on(client.post("/api/v1/transfers", &request))?;
//! assert_eq!(added.transfers[0].state, TransferState::Paused);
//!
//! // It ends by a signal to its process.
//! # use rustix::process::{Signal, getpid, kill_process};
//! kill_process(getpid(), Signal::TERM)?;
//! agent.join().expect("no panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
pub mod api;
mod aria2;
pub mod client;
mod dashboard;
mod database;
pub mod error;
mod events;
pub mod farm;
mod instance;
mod live;
mod notify;
mod offer;
mod partial_files;
pub mod paths;
pub mod queue;
pub mod request;
mod runner;
mod scope;
mod secrets;
pub mod settings;
pub mod transfer;
pub mod unit;
mod user_dirs;

use serde::Serialize;

/// Serialises a value of a serialisable type.
pub(crate) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
