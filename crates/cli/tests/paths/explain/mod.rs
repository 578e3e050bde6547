//! Explanations of transfers: of curl, by captures of either side and of the running process; and
//! with a fault that is planted into an emulated path, which transfer, record and report must name.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::Ended;
use crate::support::held_path::{is_held, until_held};
use crate::support::lab::{exec_in, needs_lab, needs_lab_with, objects, ran, ran_in};

/// Serves a file with kernel defaults: pacing would adapt to the path.
const SERVE: &str = "exec longhaul serve served --listen $LAB_SERVER:8080 --pace off";

/// Creates a home with a file of `size` bytes in `served`.
fn transfer_home(size: u64) -> TempDir {
    // In memory, if there is room: the disk must not be the limit.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let home = tempfile::tempdir_in(place).unwrap();
    fs::create_dir(home.path().join("served")).unwrap();
    fs::File::create(home.path().join("served/file")).unwrap().set_len(size).unwrap();
    home
}

/// A receive buffer of 256 KiB.
const SMALL_WINDOW: &str = "sysctl -qw net.ipv4.tcp_rmem='4096 131072 262144';";

/// Downloads over a path that is captured on both hosts: either capture names the limit.
#[test]
fn captures_of_either_side_name_the_limit() {
    let Some(()) = needs_lab_with(&["curl"]) else { return };
    for (path, before, size, limit) in [
        ("--rate 200Mbit --rtt 50ms", SMALL_WINDOW, 12_000_000, "receive-window"),
        ("--rate 20Mbit --rtt 20ms --queue 200KB", "", 10_000_000, "path"),
    ] {
        let home = transfer_home(size);
        let captures = "--pcap receiver.pcap --pcap-server sender.pcap --server-port 8080 --server";
        let options: Vec<_> = path.split(' ').chain(captures.split(' ')).chain([SERVE]).collect();
        let client = format!("{before} exec curl -sS -o got http://$LAB_SERVER:8080/file");
        ran(exec_in(home.path(), &options, &client)).ok();
        for (capture, at_sender) in [("receiver.pcap", false), ("sender.pcap", true)] {
            let flow = objects(&ran_in(home.path(), &["explain", capture, "--json"]).ok()).remove(0);
            assert!(flow["at_sender"] == at_sender && flow["limited_by"] == limit, "{flow}");
            assert!(flow["bytes"].as_u64().unwrap() >= size, "{flow}");
            let shares: &Value = &flow["shares"];
            assert!(shares[limit].as_f64().unwrap() > 0.5, "{flow}");
        }
    }
}

#[test]
fn running_curl_with_a_small_window_is_limited_by_it() {
    let Some(()) = needs_lab_with(&["curl"]) else { return };
    let home = transfer_home(1 << 30);
    let client = format!(
        "{SMALL_WINDOW} curl -sS -o /dev/null http://$LAB_SERVER:8080/file & \
         sleep 0.5; longhaul explain --pid $! --for 4s --json; kill $!"
    );
    let options = ["--rate", "200Mbit", "--rtt", "50ms", "--server", SERVE, "--server-port", "8080"];
    let flow = objects(&ran(exec_in(home.path(), &options, &client)).ok()).remove(0);
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"receive-window".into()), "{flow}");
    assert!(flow["advice"].to_string().contains("tcp_rmem"), "{flow}");
}

/// A path with its fault, the server's command and the client's transfer.
struct PlantedFault {
    path: &'static str,
    server: &'static str,
    client: &'static str,
    /// Bytes of the file.
    size: u64,
    limit: &'static str,
}

const GET: &str =
    "longhaul get --json --streams 1 --no-memory --no-resume --record r.jsonl --record-interval 50ms -o got";
const WRITABLE: &str = "umask 077; echo secret-token-of-the-test >token; \
    exec longhaul serve served --listen $LAB_SERVER:8080 --writable --allow-cleartext --token token";
const PUT: &str = "sysctl -qw net.ipv4.tcp_wmem='4096 16384 131072'; longhaul put --json --streams 1 --no-memory \
    --allow-cleartext --token token --record r.jsonl --record-interval 50ms served/file http://$LAB_SERVER:8080/sent";

impl PlantedFault {
    /// Transfers the file; checks that result, explanation and report agree.
    fn check(&self) {
        let home = transfer_home(self.size);
        let options = ["--strict", "--server", self.server, "--server-port", "8080"];
        let options: Vec<_> = self.path.split(' ').chain(options).collect();
        let client = match self.client {
            PUT => PUT.to_owned(),
            options => format!("rm -f got; {GET} {options} http://$LAB_SERVER:8080/file"),
        };
        let share = |of: &Value| of["shares"][self.limit].as_f64().unwrap_or(0.0);
        let is_named = |done: &Value| done["limited_by"] == self.limit && share(done) > 0.4;
        let done_of = |ended: &Ended| objects(ended).into_iter().find(|event| event["event"] == "done");
        let attempt = || ran(exec_in(home.path(), &options, &client));
        let is_right = |ended: &Ended| done_of(ended).is_some_and(|done| is_named(&done));
        let Some(ended) = until_held(self.limit, attempt, is_held, is_right) else { return };
        assert!(ended.status.success() || !is_held(&ended), "{}: {ended:?}", self.limit);
        let done = done_of(&ended).unwrap();
        assert!(is_named(&done), "{}: {done}", self.limit);
        assert!(done["advice"][0].as_str().unwrap().starts_with("limited by "), "{done}");
        let explained = objects(&ran_in(home.path(), &["explain", "r.jsonl", "--json"]).ok()).remove(0);
        assert_eq!((&explained["limited_by"], share(&explained)), (&done["limited_by"], share(&done)));
        let spans = explained["timeline"].as_array().unwrap();
        assert!(spans.iter().any(|span| span["limited_by"] == self.limit), "{spans:?}");
        ran_in(home.path(), &["report", "r.jsonl", "-o", "r.html"]).ok();
        let page = fs::read_to_string(home.path().join("r.html")).unwrap();
        assert!(page.contains(r#""mark":"band""#) && page.contains(&format!("\"name\":\"{} ", self.limit)));
    }
}

#[test]
fn planted_fault_is_named() {
    let Some(()) = needs_lab() else { return };
    let (long, far) = ("--rate 200Mbit --rtt 50ms", "--rate 200Mbit --rtt 200ms");
    let lossy = "--rate 200Mbit --rtt 50ms --loss 0.1% --congestion cubic";
    let narrow = "--rate 20Mbit --rtt 20ms --queue 200KB";
    let (client, small, server) = ("", "--recv-buffer 128KiB", SERVE);
    for fault in [
        PlantedFault { path: long, server, client: small, size: 12_000_000, limit: "receive-window" },
        PlantedFault { path: lossy, server, client, size: 16_000_000, limit: "loss" },
        PlantedFault { path: narrow, server, client, size: 10_000_000, limit: "path" },
        PlantedFault { path: far, server, client, size: 1_000_000, limit: "slow-start" },
        PlantedFault { path: long, server: WRITABLE, client: PUT, size: 8_000_000, limit: "send-buffer" },
    ] {
        fault.check();
    }
}
