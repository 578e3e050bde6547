//! The agent's aria2 RPC, used by aria2p and by pages of other origins.
mod agent;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::skip;
use agent::{Agent, Server};

/// Installed by scripts/setup.sh.
const PYTHON: &str = "/opt/longhaul-test/aria2p/bin/python";
/// Large enough to be paused at 4 MiB/s.
const SIZE: usize = 24 << 20;

#[test]
fn aria2p_drives_the_agent() {
    if !Path::new(PYTHON).exists() {
        return skip("aria2p is missing: run scripts/setup.sh test");
    }
    let agent = Agent::start(&["--aria2-rpc"]);
    let content: Vec<u8> = (0..SIZE).map(|at| (at * 7 / 5) as u8).collect();
    let server = Server::of("data.bin", &content);
    let directory = agent.directory().join("fetched");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/aria2/aria2p_client.py");
    let run = Command::new(PYTHON)
        .arg(script)
        .args([&agent.port().to_string(), agent.token(), &server.url("data.bin")])
        .arg(&directory)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert!(fs::read(directory.join("slow.bin")).unwrap() == content, "the file differs");
}

#[test]
fn calls_need_the_token_and_the_host_but_no_origin() {
    let agent = Agent::start(&["--aria2-rpc"]);
    let call = |token: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"q","method":"aria2.getVersion","params":["token:{token}"]}}"#)
    };
    let right = call(agent.token());
    let host = format!("127.0.0.1:{}", agent.port());

    let page = agent.post("/jsonrpc", &host, Some("http://ariang.example"), &right);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("\"version\""), "{page}");
    assert!(page.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{page}");

    let wrong = agent.post("/jsonrpc", &host, None, &call("wrong"));
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("Unauthorized"), "{wrong}");
    let rebound = agent.post("/jsonrpc", "evil.example:6777", None, &right);
    assert!(rebound.starts_with("HTTP/1.1 421"), "{rebound}");
    let broken = agent.post("/jsonrpc", &host, None, "{");
    assert!(broken.contains("-32700"), "{broken}");
    let unknown = agent.post("/jsonrpc", &host, None, &right.replace("getVersion", "addTorrent"));
    assert!(unknown.starts_with("HTTP/1.1 404") && unknown.contains("-32601"), "{unknown}");
    // The rest of the API refuses pages of other origins.
    let other = agent.post("/api/v1/transfers", &host, Some("http://ariang.example"), "{}");
    assert!(other.starts_with("HTTP/1.1 403"), "{other}");
}

#[test]
fn without_the_option_there_is_no_rpc() {
    let agent = Agent::start(&[]);
    let host = format!("127.0.0.1:{}", agent.port());
    let call = format!(r#"{{"id":1,"method":"aria2.getVersion","params":["token:{}"]}}"#, agent.token());
    let answer = agent.post("/jsonrpc", &host, None, &call);
    assert!(answer.starts_with("HTTP/1.1 401") || answer.starts_with("HTTP/1.1 404"), "{answer}");
}
