//! Numbers of streams that are chosen on the way, against servers that do not like several, over real sockets.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Ended, File, Get, Peer, Server, content, get, same};

const SIZE: usize = 40 << 20;
/// GridFTP-APT with chunks of about a MiB: the first is larger the shorter the path is.
const APT: [&str; 4] = ["--tuner", "apt", "--apt-delta", "1ms"];
const MEMORY: &str = ".local/state/longhaul/paths.json";

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
        remember(&run, server, 1000, 8);
        run
    };
    [chosen("apt", serve(), |_| get().args(APT)), chosen("auto", serve(), own)]
}

fn chosen(who: &'static str, server: Server, run: impl Fn(&Server) -> Get) -> Chosen {
    let run = run(&server).args(["--json", "-o", "f", &server.url("/f")]);
    Chosen { run, who, server }
}

/// Lets a run remember that so many streams paid on a path of this RTT.
fn remember(run: &Get, server: &Server, rtt_us: u64, streams: u64) {
    let port = server.address.port();
    let text = format!(
        r#"{{"version":1,"paths":[{{"host":"127.0.0.1","port":{port},"rtt_us":{rtt_us},"rate_bps":1000000000,
            "streams":{streams},"app_buffer":67108864,"window":0,"at":{}}}]}}"#,
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    );
    fs::create_dir_all(run.path(MEMORY).parent().unwrap()).unwrap();
    fs::write(run.path(MEMORY), text).unwrap();
}

fn events<'a>(ended: &'a Ended, kind: &'static str) -> impl Iterator<Item = serde_json::Value> + use<'a> {
    ended.json().into_iter().filter(move |line| line["event"] == kind)
}

/// Serves at a rate that leaves work for every stream: one alone takes five seconds.
fn serve_slowly(peer: &mut Peer, file: &File) {
    serve_at(8_000_000, peer, file);
}

fn serve_at(rate: usize, peer: &mut Peer, file: &File) {
    while let Some(ask) = peer.ask() {
        let (head, body) = file.answer(&ask);
        if !peer.send(head) || !peer.trickle(body, rate) {
            return;
        }
    }
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
        // Progress is shown now and then: the last change may have come after it.
        assert!(most > Some(2) && done["streams"].as_u64() >= Some(2), "{who}: {most:?} {done}");
        assert!(ended.time < Duration::from_secs(4), "{who}: {:?}", ended.time);
    }
}

/// Fetches from a server that treats all but the first connection by `refuse`; nobody is asked often.
fn with_only_one(refuse: impl Fn(&mut Peer) + Send + Sync + Copy + 'static) {
    let file = File::new(content(SIZE, 2));
    let serve = || {
        let (served, open) = (file.clone(), AtomicUsize::new(0));
        Server::new(move |peer| {
            if open.fetch_add(1, Ordering::SeqCst) == 0 {
                serve_at(20_000_000, peer, &served);
                open.store(0, Ordering::SeqCst);
            } else {
                refuse(peer);
            }
        })
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(events(&ended, "refused").count() > 0, "{who}: {ended:?}");
        assert_eq!(events(&ended, "warning").count(), 0, "{who}: {ended:?}");
        let connected = events(&ended, "connected").count();
        assert!(connected <= 12, "{who}: {connected} connections");
        assert_eq!(ended.done()["streams"], 1, "{who}");
    }
}

#[test]
fn a_second_connection_is_closed() {
    with_only_one(|_| {});
}

#[test]
fn a_second_connection_is_reset() {
    with_only_one(|peer| {
        peer.ask();
        peer.reset();
    });
}

#[test]
fn a_second_connection_is_forbidden() {
    with_only_one(|peer| {
        peer.ask();
        peer.send("HTTP/1.1 403 Too many\r\nContent-Length: 0\r\n\r\n");
        peer.close();
    });
}

/// What a server allows that counts its clients' connections.
fn above(allowed: usize, answer: &'static str) {
    let file = File::new(content(SIZE, 3));
    let refusals = Arc::new(AtomicUsize::new(0));
    let serve = || {
        let (served, open, count) = (file.clone(), AtomicUsize::new(0), refusals.clone());
        Server::new(move |peer| {
            if open.fetch_add(1, Ordering::SeqCst) < allowed {
                serve_slowly(peer, &served);
            } else if peer.ask().is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                peer.send(answer);
                peer.close();
            }
            open.fetch_sub(1, Ordering::SeqCst);
        })
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        let (streams, told) = (ended.done()["streams"].as_u64(), refusals.swap(0, Ordering::SeqCst));
        assert!(streams <= Some(allowed as u64), "{who}: {streams:?}");
        assert!((1..=16).contains(&told), "{who}: refused {told} times");
        assert_eq!(events(&ended, "retrying").count(), 0, "{who}: {ended:?}");
    }
}

#[test]
fn too_many_requests_above_three() {
    above(3, "HTTP/1.1 429 Too many\r\nRetry-After: 120\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn too_many_requests_for_ever() {
    above(3, "HTTP/1.1 429 Too many\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn unavailable_above_two() {
    above(2, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn a_server_without_ranges_has_one_stream() {
    let file = File { ranges: false, ..File::new(content(SIZE / 8, 4)) };
    for Chosen { run, who, server } in each(|| Server::of(file.clone())) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(
            (events(&ended, "connected").count(), ended.done()["streams"].as_u64()),
            (1, Some(1)),
            "{who}"
        );
        assert_eq!(server.asks().len(), 1, "{who}");
    }
}

/// A cluster of which one member ignores ranges: what it sends is not used.
#[test]
fn ranges_that_some_connections_ignore() {
    let file = File::new(content(SIZE / 2, 5));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| {
            let ranges = peer.number % 3 != 1;
            serve_slowly(peer, &File { ranges, ..served.clone() });
        })
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        // The second is given up with the first answer, and another connection comes instead.
        assert!(events(&ended, "connected").count() >= 3, "{who}: {ended:?}");
    }
}

#[test]
fn another_file_on_one_connection_is_an_error() {
    let (file, other) = (File::new(content(SIZE, 6)), File::new(content(SIZE, 7)));
    let serve = || {
        let (file, other) = (file.clone(), other.clone());
        Server::new(move |peer| {
            let served =
                if peer.number == 2 { File { etag: Some("\"v2\""), ..other.clone() } } else { file.clone() };
            while let Some(mut ask) = peer.ask() {
                ask.head = ask.head.replace("If-Range", "X-Ignored");
                let (head, body) = served.answer(&ask);
                if !peer.send(head) || !peer.trickle(body, 8_000_000) {
                    return;
                }
            }
        })
    };
    for Chosen { run, who, .. } in each(serve) {
        let ended = run.run().fails(65, &["changed on the server"]);
        assert!(!run.path("f").exists(), "{who}: {ended:?}");
    }
}

/// Fetches while the second connection serves by `stall`, for less time than a stall may take.
fn with_one_that_stalls(stall: impl Fn(&mut Peer, &File) + Send + Sync + Copy + 'static) {
    let file = File::new(content(SIZE / 2, 8));
    let stalled = Arc::new(AtomicUsize::new(0));
    let serve = || {
        let (served, count) = (file.clone(), stalled.clone());
        Server::new(move |peer| {
            if peer.number == 1 {
                count.fetch_add(1, Ordering::SeqCst);
                stall(peer, &served);
                std::thread::sleep(Duration::from_secs(60));
            } else {
                serve_slowly(peer, &served);
            }
        })
    };
    let fixed = chosen("fixed", serve(), |_| get().args(["--streams", "4"]));
    for Chosen { run, who, .. } in each(serve).into_iter().chain([fixed]) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert_eq!(stalled.swap(0, Ordering::SeqCst), 1, "{who}");
        assert!(ended.time < Duration::from_secs(15), "{who}: {:?}", ended.time);
    }
}

#[test]
fn a_stream_that_stalls_in_the_midst_does_not_hold_the_end() {
    with_one_that_stalls(|peer, file| {
        let Some(ask) = peer.ask() else { return };
        let (head, body) = file.answer(&ask);
        peer.send(head);
        peer.send(&body[..body.len() / 2]);
    });
}

#[test]
fn a_stream_that_is_never_answered_does_not_hold_the_end() {
    with_one_that_stalls(|peer, _| drop(peer.ask()));
}

/// Slower by a factor of a hundred, and never silent.
#[test]
fn a_stream_that_crawls_does_not_hold_the_end() {
    with_one_that_stalls(|peer, file| {
        serve_at(80_000, peer, file);
    });
}

/// Answers with less than was asked for, now slowly and now fast: what one takes over from another ends where an answer does.
#[test]
fn short_answers_and_takeovers_are_put_together() {
    let file = File::new(content(SIZE, 15));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| {
            let rate = if peer.number % 2 == 0 { 60_000_000 } else { 1_500_000 };
            while let Some(ask) = peer.ask() {
                let Some((start, end)) = ask.range(SIZE) else { return };
                let end = end.min(start + 700_000);
                let size = end - start;
                let head = format!(
                    "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: bytes {start}-{}/{SIZE}\r\nContent-Length: {size}\r\n\r\n",
                    end - 1
                );
                if !peer.send(head) || !peer.trickle(&served.bytes[start..end], rate) {
                    return;
                }
            }
        })
    };
    let fixed = chosen("fixed", serve(), |_| get().args(["--streams", "6"]));
    for Chosen { run, who, .. } in each(serve).into_iter().chain([fixed]) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(ended.time < Duration::from_secs(20), "{who}: {:?}", ended.time);
    }
}

/// Some servers answer If-Range with the whole file whatever it says; the marks of each answer tell as much.
#[test]
fn a_server_that_takes_no_if_range_is_asked_without() {
    let file = File::new(content(SIZE, 16));
    let serve = || {
        let served = file.clone();
        Server::new(move |peer| {
            while let Some(ask) = peer.ask() {
                let ranges = ask.field("if-range").is_none();
                let file = File { ranges, ..served.clone() };
                let (head, body) = file.answer(&ask);
                if !peer.send(head) || !peer.trickle(body, 8_000_000) {
                    return;
                }
            }
        })
    };
    let fixed = chosen("fixed", serve(), |_| get().args(["--streams", "4"]));
    for Chosen { run, who, .. } in each(serve).into_iter().chain([fixed]) {
        let ended = run.run().ok();
        same(run.path("f"), &file.bytes);
        assert!(ended.done()["streams"].as_u64() > Some(1), "{who}: {ended:?}");
    }
}

#[test]
fn a_short_path_is_asked_plainly_and_not_remembered() {
    let file = File::new(content(SIZE / 2, 9));
    let server = Server::of(file.clone());
    let run = get().args(["--json", &server.url("/f")]);
    assert_eq!(run.run().ok().done()["streams"], 1);
    same(run.path("f"), &file.bytes);
    assert_eq!((server.asks().len(), server.asks()[0].field("range")), (1, None));
    assert!(!run.path(".local").exists());
}

#[test]
fn a_path_that_has_changed_is_another() {
    let file = File::new(content(SIZE / 2, 10));
    let server = Server::of(file.clone());
    let run = get().args(["--json", &server.url("/f")]);
    // As a long one, with many streams.
    remember(&run, &server, 200_000, 100);
    assert_eq!(run.run().ok().done()["streams"], 1);
    same(run.path("f"), &file.bytes);
    assert_eq!(server.asks().len(), 1);
}

/// The same RTT, and a server that gives all connections together less than one had: nothing breaks.
#[test]
fn a_path_that_has_become_slower_is_served_all_the_same() {
    let file = File::new(content(SIZE / 8, 11));
    let (served, line) = (file.clone(), Mutex::new(()));
    let server = Server::new(move |peer| {
        while let Some(ask) = peer.ask() {
            let (head, body) = served.answer(&ask);
            let sent = peer.send(head)
                && body.chunks(64 << 10).all(|piece| {
                    let _line = line.lock().unwrap();
                    peer.trickle(piece, 4_000_000)
                });
            if !sent {
                return;
            }
        }
    });
    let run = get().args(["--json", &server.url("/f")]);
    remember(&run, &server, 1000, 100);
    let ended = run.run().ok();
    same(run.path("f"), &file.bytes);
    assert!(ended.time < Duration::from_secs(10), "{:?}", ended.time);
}

#[test]
fn what_a_transfer_found_is_kept_for_the_next() {
    let file = File::new(content(SIZE, 12));
    let served = file.clone();
    let server = Server::new(move |peer| serve_slowly(peer, &served));
    let run = get().args(["--json", &server.url("/f")]);
    remember(&run, &server, 1000, 8);
    let before = fs::read_to_string(run.path(MEMORY)).unwrap();
    run.run().ok();
    let after = fs::read_to_string(run.path(MEMORY)).unwrap();
    let known: serde_json::Value = serde_json::from_str(&after).unwrap();
    assert_ne!(before, after);
    let [path] = &known["paths"].as_array().unwrap()[..] else { panic!("{after}") };
    assert_eq!(path["port"], server.address.port());
    assert!(path["streams"].as_u64() >= Some(1) && path["rate_bps"].as_u64() > Some(1_000_000), "{after}");
}

#[test]
fn a_damaged_memory_is_told_and_none_is_used() {
    let file = File::new(content(1 << 20, 13));
    let server = Server::of(file.clone());
    for text in ["", "{", "nonsense", r#"{"version":7}"#] {
        let run = get().args([&server.url("/f")]);
        remember(&run, &server, 1000, 8);
        fs::write(run.path(MEMORY), text).unwrap();
        let ended = run.run().ok();
        assert!(ended.stderr.contains("paths.json") && ended.stderr.contains("remembered"), "{ended:?}");
        same(run.path("f"), &file.bytes);
        let quiet = run.again(["--no-memory", "-o", "g", &server.url("/f")]).run().ok();
        assert!(!quiet.stderr.contains("paths.json"), "{quiet:?}");
    }
}

#[test]
fn a_memory_that_cannot_be_had_is_told() {
    let file = File::new(content(1 << 20, 14));
    let server = Server::of(file.clone());
    let run = get().args([&server.url("/f")]);
    fs::write(run.path(".local"), "a file").unwrap();
    let ended = run.run().ok();
    assert!(ended.stderr.contains("paths.json"), "{ended:?}");
    same(run.path("f"), &file.bytes);
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
