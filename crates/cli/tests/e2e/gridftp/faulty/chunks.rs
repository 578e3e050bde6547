//! Faults between the chunks of a file, each of which is a transfer of its own.

use std::io::Write;
use std::sync::{Arc, Mutex};

use super::{faulty, fetch, is_right, transfer_of};
use crate::support::{Scripted, content, end, same};

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
    is_right(&server, "4", &bytes);
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
    is_right(&server, "4", &bytes);
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
        is_right(&server, "4", &bytes);
        assert!(server.count("ERET") >= 2, "{:?}", server.commands());
    }
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
    let (run, ended) = fetch(&server, "4", "1");
    ended.fails(65, &["changed"]);
    assert!(!run.path("f").exists());
    let run = run.again(["--streams", "4", "--no-resume", "-o", "f", &server.url()]);
    run.run().ok();
    same(run.path("f"), &new);
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
    let (run, ended) = fetch(&server, "4", "1");
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
    let (run, ended) = fetch(&server, "4", "0");
    assert_eq!(ended.status.code(), Some(75), "{ended:?}");
    assert!(!run.path("f").exists());
}
