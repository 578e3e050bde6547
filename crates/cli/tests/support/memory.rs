//! The path memory.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Get, Server};

/// The file, relative to a run's directory.
pub(crate) const MEMORY: &str = ".local/state/longhaul/paths.json";

/// Stores a fresh path to the server in a run's path memory; `known` overrides default values.
pub(crate) fn remember(run: &Get, server: &Server, known: &Value) {
    let mut path = json!({
        "host": "127.0.0.1", "port": server.address.port(), "rtt_us": 1000, "rate_bps": 1_000_000_000, "streams": 1,
        "app_buffer": 1 << 26, "window": 0,
        "at": SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs(),
    });
    path.as_object_mut().unwrap().extend(known.as_object().unwrap().clone());
    fs::create_dir_all(run.path(MEMORY).parent().unwrap()).unwrap();
    fs::write(run.path(MEMORY), json!({ "version": 1, "paths": [path] }).to_string()).unwrap();
}
