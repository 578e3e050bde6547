//! Faults of the data connections within one chunk: what they send, and how they end.

use std::net::TcpStream;

use super::{SIZE, end_with, faulty, faulty_once, fetch, is_refused, is_right, transfer_of};
use crate::support::{Data, Scripted, Session, Transfer, content, end, get, same};

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
    is_right(&server, "4", &bytes);
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
    is_right(&server, "4", &bytes);
}

#[test]
fn more_connections_than_asked_for_are_used() {
    let (server, bytes) = faulty(|session, transfer, data| {
        data.extend(session.data(5));
        let file = session.file();
        assert!(transfer.send(&file, data));
        session.reply("226 complete");
    });
    is_right(&server, "4", &bytes);
}

#[test]
fn one_dropped_connection_with_426_is_repaired() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |n| n < 20);
        data.remove(1);
        session.reply("426 data connection lost");
    });
    is_right(&server, "4", &bytes);
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
    is_right(&server, "4", &bytes);
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
    is_right(&server, "4", &bytes);
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
    is_refused(&server, "4", 76, &["twice"]);
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
    let (run, ended) = fetch(&server, "4", "1");
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
    is_right(&server, "4", &bytes);
}

#[test]
fn blocks_that_are_missing_each_time_end_the_run() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| false);
        end_with(data, |n| n);
        session.reply("226 complete");
    });
    is_refused(&server, "4", 76, &["missing"]);
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
    is_refused(&server, "4", 76, &["outside"]);
}

#[test]
fn a_block_at_an_impossible_offset_is_refused() {
    let (server, _) = faulty(|_, _, data| {
        data[0].header(0, 10, u64::MAX - 4);
    });
    is_refused(&server, "4", 76, &["beyond the largest file"]);
}

#[test]
fn more_ends_announced_than_sent_are_not_waited_for_long() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        end_with(data, |n| n + 1);
        session.reply("226 complete");
    });
    is_right(&server, "4", &bytes);
}

#[test]
fn more_ends_than_announced_are_no_complete_file() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        end(data, 2);
        session.reply("226 complete");
    });
    is_right(&server, "4", &bytes);
}

#[test]
fn no_ends_at_all_end_the_run() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send_blocks(&file, data, |_| true);
        session.reply("226 complete");
        std::thread::sleep(std::time::Duration::from_secs(8));
    });
    let (run, ended) = fetch(&server, "4", "0");
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
    let (run, ended) = fetch(&server, "4", "1");
    assert!(matches!(ended.status.code(), Some(75 | 76)), "{ended:?}");
    assert!(!run.path("f").exists());
}

#[test]
fn headers_of_no_mode_e_are_refused() {
    for (descriptor, word) in [(3, "0x03"), (16, "0x10"), (32, "read with errors")] {
        let (server, _) = faulty(move |_, _, data| {
            data[0].header(descriptor, 10, 0);
        });
        is_refused(&server, "4", 76, &[word]);
    }
}

#[test]
fn success_reported_before_the_data_does_no_harm() {
    let (server, bytes) = faulty(|session, transfer, data| {
        session.reply("226 complete");
        let file = session.file();
        assert!(transfer.send(&file, data));
    });
    is_right(&server, "4", &bytes);
}

#[test]
fn success_that_is_never_reported_is_not_waited_for_long() {
    let (server, bytes) = faulty_once(|session, transfer, data| {
        let file = session.file();
        transfer.send(&file, data);
        // The control connection remains open without a reply.
        std::thread::sleep(std::time::Duration::from_secs(8));
    });
    let ended = is_right(&server, "4", &bytes);
    assert!(ended.time.as_secs() < 30, "{ended:?}");
}

#[test]
fn failure_reported_after_all_of_the_data_is_not_ignored() {
    let (server, _) = faulty(|session, transfer, data| {
        let file = session.file();
        transfer.send(&file, data);
        session.reply("451 local error in processing: read error");
    });
    is_refused(&server, "4", 75, &["451"]);
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
    is_right(&server, "4", &bytes);
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
fn a_wrong_checksum_is_found() {
    let bytes = content(SIZE, 77);
    let server = Scripted::honest(bytes);
    let expected = format!("blake3:{}", "0".repeat(64));
    let run = get().args(["--streams", "4", "-o", "f", "--checksum", &expected, &server.url()]);
    run.run().fails(65, &[&expected]);
    assert!(!run.path("f").exists());
}
