//! Plants one fault at a time into an emulated path: transfer, record and report must name it.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::explain::command::{
    explain, first_object, has_lab, is_held, longhaul, objects_of, repeat_until_held, text, transfer_home,
    with_program,
};

/// A path with its fault, the server's command and the client's transfer.
struct PlantedFault<'a> {
    path: &'a [&'a str],
    server: &'a str,
    client: &'a str,
    /// Bytes of the file.
    size: u64,
    limit: &'a str,
}

/// Serves a file with kernel defaults: pacing would adapt to the path.
const SERVE: &str = "exec longhaul serve served --listen $LAB_SERVER:8080 --pace off";
const GET: &str =
    "longhaul get --json --streams 1 --no-memory --no-resume --record r.jsonl --record-interval 50ms -o got";

impl PlantedFault<'_> {
    /// Transfers the file; checks that result, explanation and report agree.
    fn check(&self) {
        let home = transfer_home(self.size);
        if !has_lab(home.path()) {
            return;
        }
        let mut command = with_program(longhaul(home.path()));
        command.args(["lab", "exec", "--strict"]).args(self.path);
        command.args(["--server", self.server, "--server-port", "8080"]);
        command.args(["--", "sh", "-c", &format!("rm -f got; {}", self.client)]);
        let share = |of: &Value| of["shares"][self.limit].as_f64().unwrap_or(0.0);
        let is_named = |done: &Value| done["limited_by"] == self.limit && share(done) > 0.4;
        let done_of = |output: &Output| objects_of(output).into_iter().find(|event| event["event"] == "done");
        let attempt = || command.output().unwrap();
        let output = repeat_until_held(attempt, |output| done_of(output).is_some_and(|done| is_named(&done)));
        assert!(output.status.success() || !is_held(&output), "{}", text(&output.stderr));
        let done = done_of(&output).unwrap();
        assert!(is_named(&done), "{done}");
        assert!(done["advice"][0].as_str().unwrap().starts_with("limited by "), "{done}");
        let explained = first_object(&explain(home.path(), &["r.jsonl", "--json"]));
        assert_eq!((&explained["limited_by"], share(&explained)), (&done["limited_by"], share(&done)));
        let spans = explained["timeline"].as_array().unwrap();
        assert!(spans.iter().any(|span| span["limited_by"] == self.limit), "{spans:?}");
        let report = longhaul(home.path()).args(["report", "r.jsonl", "-o", "r.html"]).output().unwrap();
        assert!(report.status.success(), "{}", text(&report.stderr));
        let page = fs::read_to_string(home.path().join("r.html")).unwrap();
        assert!(page.contains(r#""mark":"band""#) && page.contains(&format!("\"name\":\"{} ", self.limit)));
    }
}

#[test]
fn small_receive_window_is_named() {
    let client = format!("{GET} --recv-buffer 128KiB http://$LAB_SERVER:8080/file");
    let path = &["--rate", "200Mbit", "--rtt", "50ms"];
    PlantedFault { path, server: SERVE, client: &client, size: 12_000_000, limit: "receive-window" }.check();
}

#[test]
fn random_loss_is_named() {
    let client = format!("{GET} http://$LAB_SERVER:8080/file");
    let path = &["--rate", "200Mbit", "--rtt", "50ms", "--loss", "0.001", "--congestion", "cubic"];
    PlantedFault { path, server: SERVE, client: &client, size: 16_000_000, limit: "loss" }.check();
}

#[test]
fn narrow_bottleneck_is_named() {
    let client = format!("{GET} http://$LAB_SERVER:8080/file");
    let path = &["--rate", "20Mbit", "--rtt", "20ms", "--queue", "200KB"];
    PlantedFault { path, server: SERVE, client: &client, size: 10_000_000, limit: "path" }.check();
}

#[test]
fn short_file_is_named() {
    let client = format!("{GET} http://$LAB_SERVER:8080/file");
    let path = &["--rate", "200Mbit", "--rtt", "200ms"];
    PlantedFault { path, server: SERVE, client: &client, size: 1_000_000, limit: "slow-start" }.check();
}

#[test]
fn limit_of_the_user_is_named() {
    let client = format!("{GET} --limit 20Mbit http://$LAB_SERVER:8080/file");
    let path = &["--rate", "200Mbit", "--rtt", "20ms"];
    PlantedFault { path, server: SERVE, client: &client, size: 8_000_000, limit: "limit" }.check();
}

#[test]
fn small_send_buffer_of_an_upload_is_named() {
    let server = "umask 077; echo secret-token-of-the-test >token; \
               exec longhaul serve served --listen $LAB_SERVER:8080 --writable --allow-cleartext --token token";
    let client = "sysctl -qw net.ipv4.tcp_wmem='4096 16384 131072'; longhaul put --json --streams 1 --no-memory --allow-cleartext \
                --token token --record r.jsonl --record-interval 50ms served/file http://$LAB_SERVER:8080/sent";
    let path = &["--rate", "200Mbit", "--rtt", "50ms"];
    PlantedFault { path, server, client, size: 8_000_000, limit: "send-buffer" }.check();
}
