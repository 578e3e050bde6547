//! Tuned numbers of streams, against servers that limit connections, over real sockets.

mod answers;
mod memory;
mod refusals;
mod stalls;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ended, File, Get, Peer, Server, content, get, remember, same};

const SIZE: usize = 40 << 20;
/// GridFTP-APT with chunks of about 1 MiB: the shorter the path, the larger the first.
const APT: [&str; 4] = ["--tuner", "apt", "--apt-delta", "1ms"];

/// A fetch with a tuner, and its server.
struct TunedFetch {
    run: Get,
    tuner: &'static str,
    server: Server,
}

/// Creates a fetch for each tuner: on such a short path Longhaul's tuner uses several streams only if the path memory recommends them.
fn each_tuner(serve: impl Fn() -> Server) -> [TunedFetch; 2] {
    let own = |server: &Server| {
        let run = get();
        remember(&run, server, &json!({ "streams": 8 }));
        run
    };
    [tuned_fetch("apt", serve(), |_| get().args(APT)), tuned_fetch("auto", serve(), own)]
}

/// Like [`each_tuner`], with a further fetch with a fixed number of streams.
fn each_tuner_and_fixed(streams: &str, serve: impl Fn() -> Server) -> impl Iterator<Item = TunedFetch> {
    let fixed = tuned_fetch("fixed", serve(), |_| get().args(["--streams", streams]));
    each_tuner(serve).into_iter().chain([fixed])
}

fn tuned_fetch(tuner: &'static str, server: Server, run: impl Fn(&Server) -> Get) -> TunedFetch {
    let run = run(&server).args(["--json", "-o", "f", &server.url("/f")]);
    TunedFetch { run, tuner, server }
}

fn events<'a>(ended: &'a Ended, kind: &'static str) -> impl Iterator<Item = Value> + use<'a> {
    ended.json().into_iter().filter(move |line| line["event"] == kind)
}

/// Serves at a rate that leaves work for every stream: one alone takes five seconds.
fn serve_slowly(peer: &mut Peer, file: &File) {
    peer.serve_at(8_000_000, file);
}

#[test]
fn several_streams_fetch_the_file_with_each_tuner() {
    let file = File::new(content(SIZE, 1));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| serve_slowly(peer, &served))
    };
    for TunedFetch { run, tuner, .. } in each_tuner(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let most = events(&ended, "progress").map(|line| line["streams"].as_u64().unwrap()).max();
        let done = ended.done();
        let connected = events(&ended, "connected").count() as u64;
        // Progress events are periodic: the last change may follow the last event.
        assert!(most > Some(2) && most <= Some(connected), "{tuner}: {most:?} of {connected}");
        assert!((2..=connected).contains(&done["streams"].as_u64().unwrap()), "{tuner}: {connected}, {done}");
        assert!(ended.time < Duration::from_secs(4), "{tuner}: {:?}", ended.time);
    }
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (args, word) in [
        (&["--tuner", "apt", "--streams", "4"][..], "--tuner apt"),
        (&["--apt-alpha", "2"], "--tuner apt"),
        (&["--tuner", "apt", "--apt-alpha", "1"], "--apt-alpha"),
        (&["--tuner", "apt", "--apt-n0", "0"], "--apt-n0"),
        (&["--tuner", "apt", "--apt-delta", "0s"], "--apt-delta"),
        (&["--tuner", "fastest"], "--tuner"),
    ] {
        // No server listens: the usage error precedes the connection.
        let ended = get().args(args).args(["http://127.0.0.1:1/f"]).run();
        assert_eq!(ended.status.code(), Some(64), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(word), "{args:?}: {ended:?}");
    }
}
