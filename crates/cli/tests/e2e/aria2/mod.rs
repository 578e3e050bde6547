//! The agent's aria2 RPC, used by aria2p and by pages of other origins.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::lab::wait_until;
use crate::support::{File, Home, Server, content, same, skip};

/// Installed by scripts/setup.sh.
const PYTHON: &str = "/opt/longhaul-test/aria2p/bin/python";
/// Large enough to be paused at 4 MiB/s.
const SIZE: usize = 24 << 20;

#[test]
fn aria2p_drives_the_agent() {
    if !Path::new(PYTHON).exists() {
        return skip("aria2p is missing: run scripts/setup.sh test");
    }
    let home = Home::with(&["--aria2-rpc"]);
    let (address, token) = home.dashboard();
    let bytes = content(SIZE, 1);
    let file = File::new(bytes.clone());
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned();
    let server = Server::new(move |peer| {
        peer.serve_with(|request| match request.target.as_str() {
            "/data.bin" => file.answer(&request),
            _ => (missing.clone(), &[]),
        });
    });
    let mut client = Command::new(PYTHON);
    client.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/aria2/aria2p_client.py"));
    client.args([address.rsplit(':').next().unwrap(), &token, &server.url("/data.bin")]).arg(home.files());
    let run = client.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    same(home.files().join("slow.bin"), &bytes);
}

/// The headers of a page of another origin.
const PAGE: (&str, &str) = ("Origin", "http://ariang.example");

#[test]
fn existing_files_and_chosen_gids_are_treated_as_in_aria2_and_calls_need_a_token_and_the_host() {
    let home = Home::with(&["--aria2-rpc"]);
    // A later agent, which starts on demand, serves the calls too.
    home.kill(rustix::process::Signal::KILL);
    let server = Server::of(File::new(content(100_000, 2)));
    let call = |token: &str, method: &str, params: &[Value]| -> Value {
        let token = std::fs::read_to_string(home.state(token)).unwrap_or_default();
        let params = [&[json!(format!("token:{token}"))], params].concat();
        let body =
            json!({"jsonrpc": "2.0", "id": "q", "method": format!("aria2.{method}"), "params": params});
        let answer = home.answer("POST", "/jsonrpc", &[PAGE, ("Authorization", "")], &body.to_string());
        assert!(answer.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{answer}");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let file = json!([server.url("/f")]);
    std::fs::write(home.files().join("f"), "precious").unwrap();
    home.set(&json!({"directory": home.files()}));
    for (options, code, name) in [
        (json!({"gid": "00000000000000ab"}), "0", "f (1)"),
        (json!({"auto-file-renaming": "false"}), "13", "f"),
        (json!({"allow-overwrite": "true", "out": "f"}), "0", "f"),
        (json!({"dir": home.files(), "out": "f"}), "0", "f (2)"),
    ] {
        let gid = call("agent.token", "addUri", &[file.clone(), options.clone()])["result"].clone();
        assert!(options["gid"].is_null() || options["gid"] == gid, "{gid}");
        let status = || call("agent.token", "tellStatus", std::slice::from_ref(&gid))["result"].clone();
        wait_until("its end", || status()["errorCode"].is_string());
        let (ended, path) = (status(), home.files().join(name));
        assert_eq!(
            (&ended["errorCode"], &ended["files"][0]["path"]),
            (&json!(code), &json!(path)),
            "{options}"
        );
    }
    for (token, method, params, why) in [
        ("agent.token", "addUri", vec![file.clone(), json!({"gid": "00000000000000ab"})], "not unique"),
        ("download.token", "addUri", vec![file.clone(), json!({"dir": home.path("")})], "may not"),
        ("download.token", "addUri", vec![file.clone(), json!({"allow-overwrite": "true"})], "may not"),
        ("download.token", "changeGlobalOption", vec![json!({"dir": home.path("")})], "may not"),
        ("no token", "getVersion", vec![], "Unauthorized"),
    ] {
        let refused = call(token, method, &params);
        assert!(refused["error"]["message"].as_str().unwrap().contains(why), "{params:?}: {refused}");
    }
    assert!(call("download.token", "addUri", &[file])["result"].is_string());
    let rebound = [PAGE, ("Authorization", ""), ("Host", "evil.example:6777")];
    assert!(home.answer("POST", "/jsonrpc", &rebound, "{}").starts_with("HTTP/1.1 421"));
}
