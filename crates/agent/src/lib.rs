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
