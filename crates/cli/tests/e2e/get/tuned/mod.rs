//! Tuned numbers of streams, against servers that limit connections, over real sockets.

mod answers;
mod memory;
mod refusals;

use serde_json::json;

use crate::support::{Ended, File, Get, Server, at_once, content, get, remember};

const SIZE: usize = 40 << 20;
/// Bytes per second of a connection that leaves work for every stream: one alone takes five
/// seconds.
const RATE: usize = 8_000_000;
/// GridFTP-APT with chunks of about 1 MiB: the shorter the path, the larger the first.
const APT: [&str; 4] = ["--tuner", "apt", "--apt-delta", "1ms"];

/// Runs `test` with a fetch and its server for each tuner, all at once: `apt`, Longhaul's `auto`,
/// or a fixed number of streams. On such a short path `auto` uses several streams only if the path
/// memory recommends them.
fn each(tuners: &[&str], serve: impl Fn() -> Server, test: impl Fn(&str, &Get, &Server) + Sync) {
    at_once(tuners.iter().map(|tuner| (*tuner, serve())), |(tuner, server)| {
        // Longer than a run may take: only a takeover ends a stall.
        let run = get().args(["--stall-timeout", "120s", "--json", "-o", "f", &server.url("/f")]);
        let run = match tuner {
            "apt" => run.args(APT),
            "auto" => {
                remember(&run, &server, &json!({ "streams": 8 }));
                run
            }
            streams => run.args(["--streams", streams]),
        };
        test(tuner, &run, &server);
    });
}

fn count(ended: &Ended, event: &str) -> usize {
    ended.events(event).len()
}

#[test]
fn several_streams_fetch_the_file_with_each_tuner() {
    let file = File::new(content(SIZE, 1));
    each(
        &["apt", "auto"],
        || Server::slow(RATE, &file),
        |tuner, run, _| {
            let ended = run.fetches(&file.bytes);
            let most = ended.events("progress").iter().map(|line| line["streams"].as_u64().unwrap()).max();
            let (done, connected) = (ended.done(), count(&ended, "connected") as u64);
            // Progress events are periodic: the last change may follow the last event.
            assert!(most > Some(2) && most <= Some(connected), "{tuner}: {most:?} of {connected}");
            let streams = done["streams"].as_u64().unwrap();
            assert!((2..=connected).contains(&streams), "{tuner}: {connected}, {done}");
        },
    );
}
