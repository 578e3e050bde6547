//! The agent's aria2 RPC, used by aria2p and by pages of other origins.

use std::path::Path;
use std::process::Command;

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
fn calls_need_the_token_and_the_host_but_no_origin() {
    let home = Home::with(&["--aria2-rpc"]);
    let call = |token: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"q","method":"aria2.getVersion","params":["token:{token}"]}}"#)
    };
    let right = call(&home.dashboard().1);
    // The call carries its own token.
    let post = |headers: &[(&str, &str)], body: &str| {
        home.answer("POST", "/jsonrpc", &[headers, &[("Authorization", "")]].concat(), body)
    };
    let page = post(&[PAGE], &right);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("\"version\""), "{page}");
    assert!(page.to_ascii_lowercase().contains("access-control-allow-origin: *"), "{page}");
    for (headers, body, status, word) in [
        (&[][..], &*call("wrong"), "400", "Unauthorized"),
        (&[("Host", "evil.example:6777")], &right, "421", ""),
        (&[], "{", "", "-32700"),
        (&[], &right.replace("getVersion", "addTorrent"), "404", "-32601"),
    ] {
        let answer = post(headers, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(word), "{answer}");
    }
    // The rest of the API refuses pages of other origins.
    let other = home.answer("POST", "/api/v1/transfers", &[PAGE, ("Authorization", "")], "{}");
    assert!(other.starts_with("HTTP/1.1 403"), "{other}");
}

#[test]
fn without_the_option_there_is_no_rpc() {
    let home = Home::new();
    let call = format!(r#"{{"id":1,"method":"aria2.getVersion","params":["token:{}"]}}"#, home.dashboard().1);
    let answer = home.answer("POST", "/jsonrpc", &[("Authorization", "")], &call);
    assert!(answer.starts_with("HTTP/1.1 401") || answer.starts_with("HTTP/1.1 404"), "{answer}");
}
