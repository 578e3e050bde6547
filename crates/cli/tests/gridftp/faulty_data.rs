//! A server with faulty data connections: the file is right in the end, or the run ends in time with an error that names the fault.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

/// Fetches to `f` with four streams and short timeouts.
fn fetch(server: &Scripted, retries: &str) -> (Get, Ended) {
    let options = ["--streams", "4", "--stall-timeout", "2s", "--retries", retries, "--json", "-o", "f"];
    let run = get().args(options).args([server.url()]);
    let ended = run.run();
    (run, ended)
}

/// Checks that the transfer survives: the file is right.
#[track_caller]
fn is_right(server: &Scripted, bytes: &[u8]) -> Ended {
    let (run, ended) = fetch(server, "3");
    let ended = ended.ok();
    same(run.path("f"), bytes);
    assert_eq!(partial_files(run.dir()), [""; 0]);
    ended
}

/// Checks that the run fails, without a file under the final name.
#[track_caller]
fn is_refused(server: &Scripted, code: i32, words: &[&str]) {
    let (run, ended) = fetch(server, "1");
    ended.fails(code, words);
    assert!(!run.path("f").exists());
}

#[test]
fn fewer_connections_than_asked_for_are_enough() {
    let bytes = content(SIZE, 70);
    let server = Scripted::new(bytes.clone(), |session, command| {
        let ignored = command.verb == "OPTS" && command.rest.contains("Parallelism");
        if ignored {
            session.reply("200 set");
        }
        ignored
    });
    is_right(&server, &bytes);
}

#[test]
fn refused_parallelism_leaves_one_connection() {
    let bytes = content(SIZE, 69);
    let server = Scripted::new(bytes.clone(), |session, command| {
        let refused = command.verb == "OPTS" && command.rest.contains("Parallelism");
        if refused {
            session.reply("500 OPTS failed");
        }
        refused
    });
    is_right(&server, &bytes);
}

#[test]
fn more_connections_than_asked_for_are_used() {
    let (server, bytes) = faulty(|session, transfer, data| {
        data.extend(session.data(5));
        let file = session.file();
        assert!(transfer.send(&file, data));
        session.reply("226 complete");
    });
    is_right(&server, &bytes);
}

#[test]
fn one_dropped_connection_with_426_is_repaired() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |n| n < 20);
        data.remove(1);
        session.reply("426 data connection lost");
    });
    is_right(&server, &bytes);
}

#[test]
fn one_connection_dropped_in_mid_block_is_repaired() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |n| n < 20);
        let block = transfer.block(20);
        data[0].header(0, block.end - block.start, block.start - transfer.base);
        let start = usize::try_from(block.start).unwrap();
        data[0].raw(&file[start..start + 1000]);
        data.remove(0);
        session.reply("500-Command failed");
        session.reply("500-globus_xio: broken pipe");
        session.reply("500 End.");
    });
    is_right(&server, &bytes);
}

#[test]
fn one_connection_dropped_in_silence_is_noticed() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |n| n % 4 != 1);
        data.remove(1);
        end(data, 4);
        session.reply("226 complete");
    });
    is_right(&server, &bytes);
}

#[test]
fn overlapping_blocks_are_refused() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        data[0].block(&file, transfer.block(0), transfer.base);
        data[1].block(&file, transfer.block(1), transfer.base);
        let overlapping = transfer.block(1).start - 1..transfer.block(2).end;
        data[0].block(&file, overlapping, transfer.base);
        session.reply("226 complete");
    });
    is_refused(&server, 76, &["twice"]);
}

/// Sends wrong bytes that a later block refutes in the first run, and is honest in the second: nothing of the first is kept.
#[track_caller]
fn refuted_bytes_are_not_resumed(
    refute: impl Fn(&mut Session, &Transfer, Vec<Data>) + Send + Sync + 'static,
) {
    let (server, bytes) = faulty(move |session, transfer, data| {
        let wrong: Vec<u8> = session.file().iter().map(|byte| !byte).collect();
        transfer.send_blocks(&wrong, data, |n| n < 40);
        // Long enough for a checkpoint, from which the next run would resume.
        std::thread::sleep(std::time::Duration::from_millis(700));
        refute(session, transfer, std::mem::take(data));
    });
    let (run, ended) = fetch(&server, "1");
    ended.fails(76, &[]);
    assert!(!run.path("f").exists());
    server.change(|_, _| false);
    let run = run.again(["--streams", "4", "-o", "f", &server.url()]);
    run.run().ok();
    same(run.path("f"), &bytes);
}

#[test]
fn bytes_before_an_overlapping_block_are_not_resumed() {
    refuted_bytes_are_not_resumed(|session, transfer, mut data| {
        data[0].block(&session.file(), transfer.block(0), transfer.base);
        session.reply("226 complete");
    });
}

#[test]
fn bytes_before_a_block_of_no_mode_e_are_not_resumed() {
    refuted_bytes_are_not_resumed(|_, _, mut data| {
        data[0].header(3, 10, 0);
    });
}

#[test]
fn bytes_of_a_chunk_whose_success_was_reported_are_not_resumed_if_a_block_refutes_them() {
    refuted_bytes_are_not_resumed(|session, transfer, mut data| {
        let (file, transfer) = (session.file(), transfer.clone());
        // After the replies that confirm an unchanged file.
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(500));
            data[0].block(&file, transfer.block(0), transfer.base);
            std::thread::sleep(std::time::Duration::from_secs(5));
        });
        session.reply("226 complete");
    });
}

#[test]
fn missing_blocks_are_fetched_again() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |n| n % 7 != 3);
        end_with(data, |n| n);
        session.reply("226 complete");
    });
    is_right(&server, &bytes);
}

#[test]
fn blocks_that_are_missing_each_time_end_the_run() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| false);
        end_with(data, |n| n);
        session.reply("226 complete");
    });
    is_refused(&server, 76, &["missing"]);
}

#[test]
fn a_block_past_the_end_is_refused() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        let len = transfer.range.end - transfer.range.start;
        data[0].header(0, 10, len);
        data[0].raw(b"0123456789");
        end_with(data, |n| n);
        session.reply("226 complete");
    });
    is_refused(&server, 76, &["outside"]);
}

#[test]
fn a_block_at_an_impossible_offset_is_refused() {
    let (server, _) = faulty(|_, _, data| {
        data[0].header(0, 10, u64::MAX - 4);
    });
    is_refused(&server, 76, &["beyond the largest file"]);
}

#[test]
fn more_ends_announced_than_sent_are_not_waited_for_long() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        end_with(data, |n| n + 1);
        session.reply("226 complete");
    });
    is_right(&server, &bytes);
}

#[test]
fn more_ends_than_announced_are_no_complete_file() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        end(data, 2);
        session.reply("226 complete");
    });
    is_right(&server, &bytes);
}

#[test]
fn no_ends_at_all_end_the_run() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        session.reply("226 complete");
        std::thread::sleep(std::time::Duration::from_secs(8));
    });
    let (run, ended) = fetch(&server, "0");
    assert!(matches!(ended.status.code(), Some(75 | 76)), "{ended:?}");
    assert!(!run.path("f").exists());
}

#[test]
fn data_after_the_end_of_data_is_refused() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        data[0].block(&file, transfer.block(0), transfer.base);
        end_with(data, |n| n);
        data[0].block(&file, transfer.block(1), transfer.base);
        session.reply("226 complete");
        std::thread::sleep(std::time::Duration::from_secs(8));
    });
    let (run, ended) = fetch(&server, "1");
    assert!(matches!(ended.status.code(), Some(75 | 76)), "{ended:?}");
    assert!(!run.path("f").exists());
}

#[test]
fn headers_of_no_mode_e_are_refused() {
    for (descriptor, word) in [(3, "0x03"), (16, "0x10"), (32, "read with errors")] {
        let (server, _) = faulty(move |_, _, data| {
            data[0].header(descriptor, 10, 0);
        });
        is_refused(&server, 76, &[word]);
    }
}

#[test]
fn success_reported_before_the_data_does_no_harm() {
    let (server, bytes) = faulty(|session, transfer, data| {
        session.reply("226 complete");
        let file = session.file();
        assert!(transfer.send(&file, data));
    });
    is_right(&server, &bytes);
}

#[test]
fn success_that_is_never_reported_is_not_waited_for_long() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send(&file, data);
        // The control connection remains open without a reply.
        std::thread::sleep(std::time::Duration::from_secs(8));
    });
    let ended = is_right(&server, &bytes);
    assert!(ended.time.as_secs() < 30, "{ended:?}");
}

#[test]
fn failure_reported_after_all_of_the_data_is_not_ignored() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send(&file, data);
        session.reply("451 local error in processing: read error");
    });
    is_refused(&server, 75, &["451"]);
}

#[test]
fn connections_opened_anew_for_each_chunk_are_used() {
    // More than the first chunk of 64 MiB.
    let bytes = content((80 << 20) + 77, 73);
    let server = Scripted::new(bytes.clone(), |session, command| {
        let Some(transfer) = transfer_of(session, command) else { return false };
        session.reply("150 sending");
        let mut data = session.data(session.parallelism);
        let file = session.file();
        let sent = transfer.send(&file, &mut data);
        drop(data);
        session.reply(if sent { "226 complete" } else { "426 data connection closed" });
        true
    });
    is_right(&server, &bytes);
    assert!(server.count("ERET") >= 2, "{:?}", server.commands());
}

#[test]
fn connections_that_announce_their_close_are_not_read_behind_it() {
    let bytes = content((80 << 20) + 78, 79);
    let server = Scripted::new(bytes.clone(), |session, command| {
        let Some(transfer) = transfer_of(session, command) else { return false };
        session.reply("150 sending");
        let (file, mut data) = (session.file(), session.data(session.parallelism + 1));
        let (connections, blocks) = (data.len() as u64, transfer.blocks());
        let last = blocks.saturating_sub(connections);
        transfer.send_blocks(&file, &mut data, |n| n < last);
        for n in last..blocks {
            let (channel, block) = (&mut data[usize::try_from(n % connections).unwrap()], transfer.block(n));
            // The first connection has its end of data in a separate header, after one that announces only the close.
            let descriptor = if n % connections == 0 { 4 } else { 12 };
            channel.header(descriptor, block.end - block.start, block.start - transfer.base);
            channel.raw(&file[usize::try_from(block.start).unwrap()..usize::try_from(block.end).unwrap()]);
        }
        data[0].header(64 | 8 | 4, 0, connections);
        drop(data);
        session.reply("226 complete");
        true
    });
    is_right(&server, &bytes);
}

/// Serves each chunk over `connections` new ones; delays the last block of a chunk and its replies, so that a chunk
/// requested ahead arrives first.
fn opening_anew(bytes: Vec<u8>, connections: usize) -> Scripted {
    const LATE: std::time::Duration = std::time::Duration::from_millis(500);
    let late_replies = Arc::new(Mutex::new(Vec::<u8>::new()));
    Scripted::new(bytes, move |session, command| {
        if let Some(transfer) = transfer_of(session, command) {
            let (file, mut data) = (session.file(), session.data(connections));
            let last = transfer.blocks() - 1;
            transfer.send_blocks(&file, &mut data, |n| n < last);
            late_replies.lock().unwrap().extend(b"226 complete\r\n");
            let (late_replies, mut control) = (Arc::clone(&late_replies), session.control());
            std::thread::spawn(move || {
                std::thread::sleep(LATE);
                let at = usize::try_from(last).unwrap() % data.len();
                data[at].block(&file, transfer.block(last), transfer.base);
                let announced = data.len() as u64;
                end(&mut data, announced);
                drop(data);
                std::thread::sleep(LATE / 2);
                let mut late_replies = late_replies.lock().unwrap();
                let _ = control.write_all(&late_replies);
                late_replies.clear();
            });
            return true;
        }
        let reply = match command.verb.as_str() {
            "SIZE" => format!("213 {}\r\n", session.file().len()),
            "MDTM" => "213 20200102030405\r\n".to_owned(),
            "MLST" => format!(
                "250-x\r\n Type=file;Size={};Modify=20200102030405; f\r\n250 End\r\n",
                session.file().len()
            ),
            _ => return false,
        };
        let mut late_replies = late_replies.lock().unwrap();
        let is_late = !late_replies.is_empty();
        if is_late {
            late_replies.extend(reply.as_bytes());
        }
        is_late
    })
}

#[test]
fn connections_opened_anew_while_the_chunk_before_is_sent_are_not_mistaken_for_its_own() {
    let bytes = content((80 << 20) + 78, 80);
    for connections in [1, 4] {
        let server = opening_anew(bytes.clone(), connections);
        is_right(&server, &bytes);
        assert!(server.count("ERET") >= 2, "{:?}", server.commands());
    }
}

#[test]
fn a_connection_from_another_host_is_not_read() {
    let bytes = content(SIZE, 74);
    let server = Scripted::new(bytes.clone(), move |session, command| {
        let Some(transfer) = transfer_of(session, command) else { return false };
        session.reply("150 sending");
        let mut strange = from_another_host(session.client().unwrap());
        // All of the file, but wrong.
        let file = session.file();
        let wrong: Vec<u8> = file.iter().map(|byte| !byte).collect();
        strange.block(&wrong, transfer.range.clone(), transfer.base);
        let mut data = session.data(session.parallelism);
        transfer.send(&file, &mut data);
        session.reply("226 complete");
        true
    });
    is_right(&server, &bytes);
}

/// Connects to the client from 127.0.0.2.
fn from_another_host(client: std::net::SocketAddr) -> Data {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let own: std::net::SocketAddr = "127.0.0.2:0".parse().unwrap();
    socket.bind(&own.into()).unwrap();
    socket.connect(&client.into()).unwrap();
    let stream: TcpStream = socket.into();
    Data::new(stream)
}

#[test]
fn a_file_that_changes_between_two_chunks_is_not_mixed() {
    let (old, new) = (content(80 << 20, 75), content((80 << 20) + 1, 76));
    let replaced = new.clone();
    let server = Scripted::new(old, move |session, command| {
        // After the first chunk and its check of the file's state.
        if command.verb == "ERET" && !command.rest.starts_with("P 0 ") {
            session.replace_file(replaced.clone());
        }
        false
    });
    let (run, ended) = fetch(&server, "1");
    ended.fails(65, &["changed"]);
    assert!(!run.path("f").exists());
    let run = run.again(["--streams", "4", "--no-resume", "-o", "f", &server.url()]);
    run.run().ok();
    same(run.path("f"), &new);
}

#[test]
fn a_wrong_checksum_is_found() {
    let bytes = content(SIZE, 77);
    let server = Scripted::honest(bytes);
    let expected = format!("blake3:{}", "0".repeat(64));
    let run = get().args(["--streams", "4", "-o", "f", "--checksum", &expected, &server.url()]);
    run.run().fails(65, &[&expected]);
    assert!(!run.path("f").exists());
}

#[test]
fn a_chunk_refused_after_the_first_ends_the_run_and_is_resumed() {
    let bytes = content((80 << 20) + 5, 78);
    let server = Scripted::new(bytes.clone(), |session, command| {
        let later = command.verb == "ERET" && !command.rest.starts_with("P 0 ");
        if later {
            session.reply("501 ERET is not permitted");
        }
        later
    });
    let (run, ended) = fetch(&server, "1");
    assert!(matches!(ended.status.code(), Some(76 | 77)), "{ended:?}");
    assert!(ended.error().contains("501"), "{ended:?}");
    server.change(|_, _| false);
    let run = run.again(["--streams", "4", "--json", "-o", "f", &server.url()]);
    let resumed = run.run().ok().done()["resumed"].as_u64().unwrap();
    same(run.path("f"), &bytes);
    assert!(resumed > 0, "what was received of the first chunk is kept");
}

#[test]
fn half_of_a_chunk_is_no_file() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |n| n < 10);
        session.close();
        data.clear();
    });
    let (run, ended) = fetch(&server, "0");
    assert_eq!(ended.status.code(), Some(75), "{ended:?}");
    assert!(!run.path("f").exists());
}
