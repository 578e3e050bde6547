//! Faults between the chunks of a file, each of which is a transfer of its own.

use std::sync::Mutex;

use super::{arrives, fetch, is_right, requests_later_chunk, sending, transfer_of};
use crate::support::{Data, Scripted, Session, Transfer, content, end, get};

/// More than the first chunk of 64 MiB.
const SIZE: usize = (80 << 20) + 77;

#[test]
fn connections_opened_anew_for_each_chunk_are_used() {
    let server = sending(content(SIZE, 73), usize::MAX, |session, transfer| {
        let mut data = session.data(session.parallelism);
        let sent = transfer.send(&session.file(), &mut data);
        drop(data);
        session.reply(if sent { "226 complete" } else { "426 data connection closed" });
    });
    is_right("opened anew", &server);
    assert!(server.count("ERET") >= 2, "{:?}", server.commands());
}

#[test]
fn connections_that_announce_their_close_are_not_read_behind_it() {
    let server = sending(content(SIZE, 79), usize::MAX, |session, transfer| {
        let (file, mut data) = (session.file(), session.data(session.parallelism + 1));
        let (connections, blocks) = (data.len() as u64, transfer.blocks());
        let last = blocks.saturating_sub(connections);
        transfer.send_blocks(&file, &mut data, |n| n < last);
        for n in last..blocks {
            let (channel, block) = (&mut data[usize::try_from(n % connections).unwrap()], transfer.block(n));
            // The first connection has its end of data in a separate header, after one that
            // announces only the close.
            let descriptor = if n % connections == 0 { 4 } else { 12 };
            channel.header(descriptor, block.end - block.start, block.start - transfer.base);
            channel.raw(&file[usize::try_from(block.start).unwrap()..usize::try_from(block.end).unwrap()]);
        }
        data[0].header(64 | 8 | 4, 0, connections);
        drop(data);
        session.reply("226 complete");
    });
    is_right("announced close", &server);
}

/// A chunk of which the last block, the ends, and all replies since its request are still to be
/// sent.
struct HeldChunk {
    transfer: Transfer,
    data: Vec<Data>,
    replies: String,
}

impl HeldChunk {
    fn finish(mut self, session: &mut Session) {
        let (last, connections) = (self.transfer.blocks() - 1, self.data.len());
        let at = usize::try_from(last).unwrap() % connections;
        self.data[at].block(&session.file(), self.transfer.block(last), self.transfer.base);
        end(&mut self.data, connections as u64);
        drop(self.data);
        session.send(self.replies.as_bytes());
    }
}

/// Serves each chunk over new connections; on the first control connection the end of the first
/// chunk is held until a part of the next one, which is requested ahead, has been sent. Later ones
/// are not requested ahead.
fn opening_anew() -> Scripted {
    let held = Mutex::new(None::<HeldChunk>);
    Scripted::new(content(SIZE, 80), move |session, command| {
        let mut held = held.lock().unwrap();
        if let Some(transfer) = transfer_of(session, command) {
            let (file, mut data) = (session.file(), session.data(session.parallelism));
            let (first, last) = (data.len() as u64, transfer.blocks() - 1);
            transfer.send_blocks(&file, &mut data, |n| n < first);
            if let Some(held) = held.take() {
                held.finish(session);
            }
            transfer.send_blocks(&file, &mut data, |n| (first..last).contains(&n));
            let is_first = session.number == 0 && transfer.range.start == 0;
            let chunk = HeldChunk { transfer, data, replies: "226 complete\r\n".to_owned() };
            if is_first {
                *held = Some(chunk);
            } else {
                chunk.finish(session);
            }
            return true;
        }
        let Some(held) = held.as_mut().filter(|_| session.number == 0) else { return false };
        assert_eq!(command.verb, "MLST", "the state after a chunk");
        let size = session.file().len();
        held.replies += &format!("250-x\r\n Type=file;Size={size};Modify=20200102030405; f\r\n250 End\r\n");
        true
    })
}

#[test]
fn connections_opened_anew_while_the_chunk_before_is_sent_are_not_mistaken_for_its_own() {
    for streams in ["1", "4"] {
        let server = opening_anew();
        arrives(get(), &server, &["--streams", streams]);
        let ahead = |(session, command): &&(usize, String)| *session == 0 && command.starts_with("ERET ");
        assert!(server.commands().iter().filter(ahead).count() >= 2, "{:?}", server.commands());
    }
}

#[test]
fn file_that_changes_between_two_chunks_is_not_mixed() {
    let new = content(SIZE + 1, 76);
    let server = Scripted::new(content(SIZE, 75), move |session, command| {
        // After the first chunk and its check of the file's state.
        if requests_later_chunk(command) {
            session.replace_file(new.clone());
        }
        false
    });
    let (run, ended) = fetch(&server, "1");
    ended.fails(65, &["changed"]);
    assert!(!run.path("f").exists());
    arrives(run, &server, &["--streams", "4", "--no-resume"]);
}

#[test]
fn chunk_refused_after_the_first_ends_the_run_and_is_resumed() {
    let server = Scripted::new(content(SIZE, 78), |session, command| {
        requests_later_chunk(command) && session.answer(command, &[("ERET", "501 ERET is not permitted")])
    });
    let (run, ended) = fetch(&server, "1");
    assert!(matches!(ended.status.code(), Some(76 | 77)), "{ended:?}");
    assert!(ended.error().contains("501"), "{ended:?}");
    server.change(|_, _| false);
    let resumed = arrives(run, &server, &["--streams", "4"]).done()["resumed"].as_u64().unwrap();
    assert!(resumed > 0, "what was received of the first chunk is kept");
}
