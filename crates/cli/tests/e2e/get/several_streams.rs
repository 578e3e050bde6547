//! Several streams against servers that limit connections or change the file. Random breaks are in
//! [`crate::faults`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::support::{File, Gate, PartialFiles, Peer, Server, at_once, content, get, response};

type Refusal = fn(&mut Peer);

fn refuse_later(peer: &mut Peer, seconds: usize) {
    peer.answer(response(&format!("503 Too many\r\nRetry-After: {seconds}"), ""));
}

/// The server serves one connection at a time; the first sends the rest only after another one was
/// refused.
#[test]
fn transfer_ends_on_the_only_connection_that_serves() {
    /// A connection whose range another stream has shortened is closed, and the next one opened.
    const CLOSE_IS_NOTICED: Duration = Duration::from_millis(300);
    let file = File::new(content(24 << 20, 1));
    let cases: [(&str, Refusal); 6] = [
        // The text is printed before the end.
        ("going on without stream", |_| {}),
        ("tries again", |peer| {
            peer.read_request();
            peer.reset();
        }),
        ("", |peer| refuse_later(peer, 3600)),
        ("", |peer| refuse_later(peer, 60)),
        ("", |peer| peer.answer(response("403 Too many", ""))),
        ("", Peer::stay_silent),
    ];
    at_once(cases, |(printed, refuse)| {
        let (served, gate, refused) = (file.clone(), Gate::default(), Gate::default());
        let (held, is_refused) = (gate.clone(), refused.clone());
        let (slot, is_taken) = (Mutex::new(()), Gate::default());
        let server = Server::new(move |peer| {
            if peer.number > 0 {
                is_taken.wait();
            }
            let Some(_serving) = slot.try_lock_for(CLOSE_IS_NOTICED) else {
                is_refused.open();
                return refuse(peer);
            };
            is_taken.open();
            peer.serve_after(1 << 20, &held, &served);
        });
        let args = ["--streams", "4", "--retries", "1", "--stall-timeout", "2s", "--connect-timeout", "1s"];
        let run = get().args(args).args([&server.url("/f")]);
        let mut running = run.start();
        running.until("a refusal", || refused.is_open());
        running.until_printed(printed);
        gate.open();
        running.end().ok();
        run.fetched(&file.bytes);
    });
}

#[test]
fn a_file_that_changes_between_ranges_is_never_mixed() {
    let (old, new) = (File::new(content(17 << 20, 2)), File::new(content(17 << 20, 3)));
    // Sends parts of the new file regardless of If-Range, or the whole new file in response to it.
    for obeys in [false, true] {
        for then in [Some("\"v2\""), None] {
            let server = changing(old.clone(), File { etag: then, ..new.clone() }, obeys);
            let run = get().args(["--streams", "4", "-o", "f", &server.url("/f")]);
            run.fails_unnamed(65, &[&server.url("/f"), "changed on the server", "--no-resume"]);
            if !obeys && then.is_some() {
                // The partial file is of the old version, and is kept until it is discarded
                // explicitly.
                let left = PartialFiles::of(&run);
                run.run().fails(65, &["f.longhaul-part", "v1", "v2", "--no-resume"]);
                left.is_kept(&run);
            }
            run.args(["--no-resume"]).run().ok();
        }
    }
}

/// Serves one file in its first response and another in all later ones.
fn changing(old: File, new: File, obeys_if_range: bool) -> Server {
    let served = AtomicUsize::new(0);
    Server::new(move |peer| {
        peer.serve_with(|mut request| {
            if !obeys_if_range {
                request.head = request.head.replace("If-Range", "X-Ignored");
            }
            let is_first = served.fetch_add(1, Ordering::SeqCst) == 0;
            if is_first { &old } else { &new }.answer(&request)
        });
    })
}

#[test]
fn unrequested_parts_are_refused() {
    for (range, word) in
        [("bytes 1-9/100", "asked for"), ("bytes 0-99/100", "Content-Length"), ("nonsense", "Content-Range")]
    {
        let server = Server::answering(format!(
            "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: {range}\r\nContent-Length: 10\r\n\r\n0123456789"
        ));
        let run = get().args(["--streams", "2", "--retries", "0", "-o", "f", &server.url("/f")]);
        run.fails_unnamed(76, &[&server.url("/f"), word]);
    }
}
