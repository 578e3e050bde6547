//! Numbers of streams that are chosen on the way, against servers that do not like several, over real sockets.

mod answers;
mod memory;
mod refusals;
mod stalls;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Ended, File, Get, Peer, Server, content, get, remember, same};

const SIZE: usize = 40 << 20;
/// GridFTP-APT with chunks of about a MiB: the first is larger the shorter the path is.
const APT: [&str; 4] = ["--tuner", "apt", "--apt-delta", "1ms"];

/// A fetch whose number of streams is chosen, from a server that has served nobody yet.
struct Chosen {
    run: Get,
    who: &'static str,
    server: Server,
}

/// Makes one for each who can choose: on a path this short Longhaul's own tuner takes several streams only where it
/// remembers that they paid.
fn each(serve: impl Fn() -> Server) -> [Chosen; 2] {
    let own = |server: &Server| {
        let run = get();
        remember(&run, server, &json!({ "streams": 8 }));
        run
    };
    [chosen("apt", serve(), |_| get().args(APT)), chosen("auto", serve(), own)]
}

/// The same, and one that is told its number.
fn each_and(streams: &str, serve: impl Fn() -> Server) -> impl Iterator<Item = Chosen> {
    let fixed = chosen("fixed", serve(), |_| get().args(["--streams", streams]));
    each(serve).into_iter().chain([fixed])
}

fn chosen(who: &'static str, server: Server, run: impl Fn(&Server) -> Get) -> Chosen {
    let run = run(&server).args(["--json", "-o", "f", &server.url("/f")]);
    Chosen { run, who, server }
}

fn events<'a>(ended: &'a Ended, kind: &'static str) -> impl Iterator<Item = Value> + use<'a> {
    ended.json().into_iter().filter(move |line| line["event"] == kind)
}

/// Serves at a rate that leaves work for every stream: one alone takes five seconds.
fn serve_slowly(peer: &mut Peer, file: &File) {
    peer.serve_at(8_000_000, file);
}

#[test]
fn several_streams_bring_the_file_whoever_chooses() {
    let file = File::new(content(SIZE, 1));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| serve_slowly(peer, &served))
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let most = events(&ended, "progress").map(|line| line["streams"].as_u64().unwrap()).max();
        let done = ended.done();
        let connected = events(&ended, "connected").count() as u64;
        // Progress is shown now and then: the last change may have come after it.
        assert!(most > Some(2) && most <= Some(connected), "{who}: {most:?} of {connected}");
        assert!((2..=connected).contains(&done["streams"].as_u64().unwrap()), "{who}: {connected}, {done}");
        assert!(ended.time < Duration::from_secs(4), "{who}: {:?}", ended.time);
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
        // Nobody listens there: a usage error comes first.
        let ended = get().args(args).args(["http://127.0.0.1:1/f"]).run();
        assert_eq!(ended.status.code(), Some(64), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(word), "{args:?}: {ended:?}");
    }
}
