//! A scripted server with faults: the file is right in the end, or the run ends in time with an
//! error that names the fault.

mod chunks;
mod control;
mod data;

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{
    Data, Ended, FtpCommand, Get, Scripted, Session, Transfer, content, get, partial_files, same,
};

/// Longer than one block per connection, and no multiple of a block.
const SIZE: usize = (3 << 20) + 12345;

/// Features of a server without MODE E.
const WITHOUT_MODE_E: &str = "211-Extensions\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n EPSV\r\n211 End";

/// Applies `fault` to the first `times` transfers in MODE E, after reply 150, over the requested
/// number of connections.
fn faulty(
    times: usize,
    fault: impl Fn(&mut Session, &Transfer, &mut Vec<Data>) + Send + Sync + 'static,
) -> Scripted {
    sending(content(SIZE, 71), times, move |session, transfer| {
        let mut data = session.data(session.parallelism);
        fault(session, transfer, &mut data);
    })
}

/// Serves `file`; handles the first `times` transfers in MODE E by `send`, after reply 150.
fn sending(
    file: Vec<u8>,
    times: usize,
    send: impl Fn(&mut Session, &Transfer) + Send + Sync + 'static,
) -> Scripted {
    let handled = AtomicUsize::new(0);
    Scripted::new(file, move |session, command| {
        let Some(transfer) = transfer_of(session, command) else { return false };
        if handled.fetch_add(1, Ordering::SeqCst) >= times {
            return false;
        }
        session.reply("150 sending");
        send(session, &transfer);
        true
    })
}

/// Serves a file without MODE E over as many control connections as `sessions`; sends it on RETR,
/// and then acts by `end` instead of the last reply.
fn sending_plainly(sessions: usize, end: impl Fn(&mut Session) + Send + Sync + 'static) -> Scripted {
    Scripted::new(content(SIZE, 98), move |session, command| {
        match command.verb.as_str() {
            "" if session.number >= sessions => session.reply("421 too many users"),
            "RETR" => {
                let start = session.transfer(command).unwrap().range.start;
                session.reply("150 sending");
                session.data(1).remove(0).raw(&session.file()[usize::try_from(start).unwrap()..]);
                end(session);
            }
            _ => return session.answer(command, &[("FEAT", WITHOUT_MODE_E)]),
        }
        true
    })
}

/// Returns whether a command requests a chunk after the first.
fn requests_later_chunk(command: &FtpCommand) -> bool {
    command.verb == "ERET" && !command.rest.starts_with("P 0 ")
}

/// Returns the requested transfer if it is in MODE E.
fn transfer_of(session: &mut Session, command: &FtpCommand) -> Option<Transfer> {
    (command.verb == "ERET" && session.extended).then(|| session.transfer(command)).flatten()
}

/// Fetches to `f` with short timeouts, over four streams.
fn fetch(server: &Scripted, retries: &str) -> (Get, Ended) {
    fetch_in(get(), server, &["--streams", "4", "--retries", retries])
}

fn fetch_in(run: Get, server: &Scripted, options: &[&str]) -> (Get, Ended) {
    let run = run.again(["--stall-timeout", "2s", "--json", "-o", "f", &server.url()]).args(options);
    let ended = run.run();
    (run, ended)
}

/// Fetches with these options; checks that the file is right.
#[track_caller]
fn arrives(run: Get, server: &Scripted, options: &[&str]) -> Ended {
    let (run, ended) = fetch_in(run, server, options);
    let ended = ended.ok();
    same(run.path("f"), &server.file());
    ended
}

/// Checks that the transfer survives: the file is right.
#[track_caller]
fn is_right(what: &str, server: &Scripted) {
    let (run, ended) = fetch(server, "3");
    assert!(ended.status.success(), "{what}: {ended:?}");
    same(run.path("f"), &server.file());
    assert_eq!(partial_files(run.dir()), [""; 0], "{what}");
}

/// Checks that the run fails with one of the codes and an error that contains `word`, without a
/// file under the final name.
#[track_caller]
fn is_refused(server: &Scripted, codes: &[i32], word: &str) {
    let (run, ended) = fetch(server, "1");
    assert!(ended.status.code().is_some_and(|code| codes.contains(&code)), "{word}: {ended:?}");
    assert!(ended.error().contains(word), "{word}: {ended:?}");
    assert!(!run.path("f").exists(), "{word}");
}
