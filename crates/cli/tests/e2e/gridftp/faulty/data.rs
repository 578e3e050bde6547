//! Faults of the data connections within one chunk: what they send, and how they end.

use std::net::{SocketAddr, TcpStream};
use std::thread::scope;

use super::{SIZE, arrives, faulty, fetch_in, is_refused, is_right, sending, transfer_of};
use crate::support::{Data, Scripted, Session, Transfer, content, end, get, has_committed_in};

type Fault = fn(&mut Session, &Transfer, &mut Vec<Data>);

fn send_announcing(session: &mut Session, transfer: &Transfer, data: &mut [Data], announced: u64) {
    transfer.send_blocks(&session.file(), data, |_| true);
    end(data, announced);
}

#[test]
fn number_of_connections_is_the_servers_choice() {
    for reply in ["200 set", "500 OPTS failed"] {
        is_right(reply, &Scripted::answering(content(SIZE, 70), [("OPTS", reply)]));
    }
    let more = faulty(usize::MAX, |session, transfer, data| {
        data.extend(session.data(5));
        assert!(transfer.send(&session.file(), data));
        session.reply("226 complete");
    });
    is_right("more connections than asked for", &more);
}

#[test]
fn fault_of_one_transfer_is_repaired() {
    let faults: [(&str, Fault); 8] = [
        ("a connection dropped between blocks, and 426", |session, transfer, data| {
            transfer.send_blocks(&session.file(), data, |n| n < 20);
            data.remove(1);
            session.reply("426 data connection lost");
        }),
        ("a connection dropped within a block, and 500", |session, transfer, data| {
            let file = session.file();
            transfer.send_blocks(&file, data, |n| n < 20);
            let block = transfer.block(20);
            data[0].header(0, block.end - block.start, block.start - transfer.base);
            let start = usize::try_from(block.start).unwrap();
            data[0].raw(&file[start..start + 1000]);
            data.remove(0);
            session.reply("500-Command failed\r\n500-globus_xio: broken pipe\r\n500 End.");
        }),
        ("a connection dropped in silence", |session, transfer, data| {
            transfer.send_blocks(&session.file(), data, |n| n % 4 != 1);
            data.remove(1);
            end(data, 4);
            session.reply("226 complete");
        }),
        ("missing blocks", |session, transfer, data| {
            transfer.send_blocks(&session.file(), data, |n| n % 7 != 3);
            end(data, 4);
            session.reply("226 complete");
        }),
        ("more ends announced than sent", |session, transfer, data| {
            send_announcing(session, transfer, data, 5);
            session.reply("226 complete");
        }),
        ("more ends than announced", |session, transfer, data| {
            send_announcing(session, transfer, data, 2);
            session.reply("226 complete");
        }),
        ("success reported before the data", |session, transfer, data| {
            session.reply("226 complete");
            send_announcing(session, transfer, data, 4);
        }),
        ("success that is never reported", |session, transfer, data| {
            send_announcing(session, transfer, data, 4);
            session.until_closed();
        }),
    ];
    scope(|threads| {
        for (what, fault) in faults {
            threads.spawn(move || is_right(what, &faulty(1, fault)));
        }
    });
}

#[test]
fn fault_of_every_transfer_ends_the_run() {
    let faults: [(&[i32], &str, Fault); 10] = [
        (&[76], "twice", |session, transfer, data| {
            let file = session.file();
            data[0].block(&file, transfer.block(0), transfer.base);
            data[1].block(&file, transfer.block(1), transfer.base);
            let overlapping = transfer.block(1).start - 1..transfer.block(2).end;
            data[0].block(&file, overlapping, transfer.base);
            session.reply("226 complete");
        }),
        (&[76], "missing", |session, _, data| {
            end(data, 4);
            session.reply("226 complete");
        }),
        (&[76], "outside", |session, transfer, data| {
            transfer.send_blocks(&session.file(), data, |_| true);
            data[0].header(0, 10, transfer.range.end - transfer.range.start);
            data[0].raw(b"0123456789");
            end(data, 4);
            session.reply("226 complete");
        }),
        (&[76], "beyond the largest file", |_, _, data| {
            data[0].header(0, 10, u64::MAX - 4);
        }),
        (&[76], "0x03", |_, _, data| {
            data[0].header(3, 10, 0);
        }),
        (&[76], "read with errors", |_, _, data| {
            data[0].header(32, 10, 0);
        }),
        (&[75], "451", |session, transfer, data| {
            transfer.send(&session.file(), data);
            session.reply("451 local error in processing: read error");
        }),
        (&[75], "closed the control connection", |session, transfer, data| {
            transfer.send_blocks(&session.file(), data, |n| n < 10);
            session.close();
            data.clear();
        }),
        (&[75, 76], "did not finish the transfer within 2s", |session, transfer, data| {
            transfer.send_blocks(&session.file(), data, |_| true);
            session.reply("226 complete");
            session.until_closed();
        }),
        (&[75, 76], "without a request", |session, transfer, data| {
            let file = session.file();
            data[0].block(&file, transfer.block(0), transfer.base);
            end(data, 4);
            data[0].block(&file, transfer.block(1), transfer.base);
            session.reply("226 complete");
            session.until_closed();
        }),
    ];
    scope(|threads| {
        for (codes, word, fault) in faults {
            threads.spawn(move || is_refused(&faulty(usize::MAX, fault), codes, word));
        }
    });
}

/// Sends wrong bytes that `refute` refutes with a later block, at once or after the replies that
/// report success and an unchanged file, in the first run; is honest in the second: nothing of the
/// first is kept.
#[track_caller]
fn refuted_bytes_are_not_resumed(after_replies: bool, refute: fn(&mut Session, &Transfer, &mut [Data])) {
    let run = get();
    let directory = run.dir().to_owned();
    let sent = std::sync::Mutex::new(None);
    let server = Scripted::new(content(SIZE, 71), move |session, command| {
        let mut sent = sent.lock().unwrap();
        if let Some(transfer) = transfer_of(session, command) {
            session.reply("150 sending");
            let mut data = session.data(session.parallelism);
            let wrong: Vec<u8> = session.file().iter().map(|byte| !byte).collect();
            transfer.send_blocks(&wrong, &mut data, |n| n < 40);
            // The next run would resume from this checkpoint.
            while !has_committed_in(&directory) {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            if after_replies {
                session.reply("226 complete");
            } else {
                refute(session, &transfer, &mut data);
            }
            *sent = Some((transfer, data));
            return true;
        }
        let Some((transfer, data)) = sent.as_mut().filter(|_| after_replies) else { return false };
        session.honest(command);
        refute(session, transfer, data);
        true
    });
    let options = ["--streams", "4", "--retries", "0"];
    let (run, ended) = fetch_in(run, &server, &options);
    ended.fails(76, &[]);
    assert!(!run.path("f").exists());
    server.change(|_, _| false);
    arrives(run, &server, &options);
}

#[test]
fn bytes_that_a_later_block_refutes_are_not_resumed() {
    for after_replies in [false, true] {
        // An overlapping block.
        refuted_bytes_are_not_resumed(after_replies, |session, transfer, data| {
            data[0].block(&session.file(), transfer.block(0), transfer.base);
        });
    }
    // A block that is none of MODE E.
    refuted_bytes_are_not_resumed(false, |_, _, data| {
        data[0].header(3, 10, 0);
    });
}

#[test]
fn connection_from_another_host_is_not_read() {
    let server = sending(content(SIZE, 74), usize::MAX, |session, transfer| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
        socket.connect(&session.client().unwrap().into()).unwrap();
        // All of the file, but wrong.
        let file = session.file();
        let wrong: Vec<u8> = file.iter().map(|byte| !byte).collect();
        Data::new(TcpStream::from(socket)).block(&wrong, transfer.range.clone(), transfer.base);
        let mut data = session.data(session.parallelism);
        transfer.send(&file, &mut data);
        session.reply("226 complete");
    });
    is_right("another host", &server);
}
