//! Plants one fault at a time into an emulated path: transfer, record and report must name it.

use std::fs;

use serde_json::Value;

use super::{SERVE, transfer_home};
use crate::support::Ended;
use crate::support::held_path::{is_held, until_held};
use crate::support::lab::{exec_in, longhaul_in, needs_lab, objects, ran};

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
        let run = |args: &[&str]| {
            let mut command = longhaul_in(home.path());
            command.args(args);
            ran(command).ok()
        };
        let explained = objects(&run(&["explain", "r.jsonl", "--json"])).remove(0);
        assert_eq!((&explained["limited_by"], share(&explained)), (&done["limited_by"], share(&done)));
        let spans = explained["timeline"].as_array().unwrap();
        assert!(spans.iter().any(|span| span["limited_by"] == self.limit), "{spans:?}");
        run(&["report", "r.jsonl", "-o", "r.html"]);
        let page = fs::read_to_string(home.path().join("r.html")).unwrap();
        assert!(page.contains(r#""mark":"band""#) && page.contains(&format!("\"name\":\"{} ", self.limit)));
    }
}

#[test]
fn planted_fault_is_named() {
    let Some(()) = needs_lab() else { return };
    let long = "--rate 200Mbit --rtt 50ms";
    let lossy = "--rate 200Mbit --rtt 50ms --loss 0.1% --congestion cubic";
    let narrow = "--rate 20Mbit --rtt 20ms --queue 200KB";
    let (client, server) = ("", SERVE);
    for fault in [
        PlantedFault {
            path: long,
            server,
            client: "--recv-buffer 128KiB",
            size: 12_000_000,
            limit: "receive-window",
        },
        PlantedFault { path: lossy, server, client, size: 16_000_000, limit: "loss" },
        PlantedFault { path: narrow, server, client, size: 10_000_000, limit: "path" },
        PlantedFault {
            path: "--rate 200Mbit --rtt 200ms",
            server,
            client,
            size: 1_000_000,
            limit: "slow-start",
        },
        PlantedFault { path: long, server: WRITABLE, client: PUT, size: 8_000_000, limit: "send-buffer" },
    ] {
        fault.check();
    }
}
