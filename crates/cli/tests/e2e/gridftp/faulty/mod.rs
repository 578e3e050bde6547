//! A scripted server with faults: the file is right in the end, or the run ends in time with an error that names the fault.

mod chunks;
mod control;
mod data;
mod data_address;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Data, Ended, FtpCommand, Get, Scripted, Session, Transfer, content, end, get, partial_files, same,
};

/// Longer than one block per connection, and no multiple of a block.
const SIZE: usize = (3 << 20) + 12345;

/// Applies `fault` to every transfer, after reply 150, over the requested number of connections.
fn faulty(
    fault: impl Fn(&mut Session, &Transfer, &mut Vec<Data>) + Send + Sync + 'static,
) -> (Scripted, Vec<u8>) {
    let bytes = content(SIZE, 71);
    let server = Scripted::new(bytes.clone(), move |session, command| {
        let Some(transfer) = transfer_of(session, command) else { return false };
        session.reply("150 sending");
        let mut data = session.data(session.parallelism);
        fault(session, &transfer, &mut data);
        true
    });
    (server, bytes)
}

/// Ends all connections, and announces `announce` of their number.
fn end_with(data: &mut [Data], announce: fn(u64) -> u64) {
    let connections = data.len() as u64;
    end(data, announce(connections));
}

/// Returns the requested transfer if it is in MODE E.
fn transfer_of(session: &mut Session, command: &FtpCommand) -> Option<Transfer> {
    (command.verb == "ERET" && session.extended).then(|| session.transfer(command)).flatten()
}

/// Applies `fault` to the first transfer only.
fn faulty_once(
    fault: impl Fn(&mut Session, &Transfer, &mut Vec<Data>) + Send + Sync + 'static,
) -> (Scripted, Vec<u8>) {
    let was_applied = AtomicBool::new(false);
    let bytes = content(SIZE, 72);
    let server = Scripted::new(bytes.clone(), move |session, command| {
        if command.verb != "ERET" || was_applied.swap(true, Ordering::SeqCst) {
            return false;
        }
        let Some(transfer) = session.transfer(command) else { return false };
        session.reply("150 sending");
        let mut data = session.data(session.parallelism);
        fault(session, &transfer, &mut data);
        true
    });
    (server, bytes)
}

/// Fetches to `f` with short timeouts.
fn fetch(server: &Scripted, streams: &str, retries: &str) -> (Get, Ended) {
    let options = ["--streams", streams, "--stall-timeout", "2s", "--retries", retries, "--json", "-o", "f"];
    let run = get().args(options).args([server.url()]);
    let ended = run.run();
    (run, ended)
}

/// Checks that the transfer survives: the file is right.
#[track_caller]
fn is_right(server: &Scripted, streams: &str, bytes: &[u8]) -> Ended {
    let (run, ended) = fetch(server, streams, "3");
    let ended = ended.ok();
    same(run.path("f"), bytes);
    assert_eq!(partial_files(run.dir()), [""; 0]);
    ended
}

/// Checks that the run fails, without a file under the final name.
#[track_caller]
fn is_refused(server: &Scripted, streams: &str, code: i32, words: &[&str]) -> Ended {
    let (run, ended) = fetch(server, streams, "1");
    let ended = ended.fails(code, words);
    assert!(!run.path("f").exists());
    ended
}

/// Features of a server without MODE E.
const WITHOUT_MODE_E: &str = "211-Extensions\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n EPSV\r\n211 End";

/// Checks that the run over two streams fails long before the usual timeouts.
#[track_caller]
fn is_soon_refused(server: &Scripted, code: i32, words: &[&str]) {
    let ended = is_refused(server, "2", code, words);
    assert!(ended.time < Duration::from_secs(25), "{ended:?}");
}
