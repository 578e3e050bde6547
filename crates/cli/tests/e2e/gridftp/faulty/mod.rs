//! A scripted server with faults: the file is right in the end, or the run ends in time with an error that names the fault.

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

/// Applies `fault` to the first `times` transfers in MODE E, after reply 150, over the requested number of connections.
fn faulty(
    times: usize,
    fault: impl Fn(&mut Session, &Transfer, &mut Vec<Data>) + Send + Sync + 'static,
) -> Scripted {
    let applied = AtomicUsize::new(0);
    Scripted::new(content(SIZE, 71), move |session, command| {
        let Some(transfer) = transfer_of(session, command) else { return false };
        if applied.fetch_add(1, Ordering::SeqCst) >= times {
            return false;
        }
        session.reply("150 sending");
        let mut data = session.data(session.parallelism);
        fault(session, &transfer, &mut data);
        true
    })
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

/// Checks that the run fails with one of the codes and an error that contains `word`, without a file under the final name.
#[track_caller]
fn is_refused(server: &Scripted, codes: &[i32], word: &str) {
    let (run, ended) = fetch(server, "1");
    assert!(ended.status.code().is_some_and(|code| codes.contains(&code)), "{word}: {ended:?}");
    assert!(ended.error().contains(word), "{word}: {ended:?}");
    assert!(!run.path("f").exists(), "{word}");
}
