//! A server with faulty storage: the file never gets its name, or a warning names the missing
//! comparison.

use std::io::Read;
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::put;
use crate::support::{Ended, FtpCommand, Scripted, Session, content};

const SIZE: usize = (2 << 20) + 777;

/// Features of a server that receives blocks and computes checksums.
const BLOCKS: &str = "211-Extensions\r\n PARALLEL\r\n ESTO\r\n SIZE\r\n CKSM SHA256:10;\r\n EPSV\r\n211 End";
/// Features of a server with plain FTP only.
const PLAIN: &str = "211-Extensions\r\n SIZE\r\n EPSV\r\n211 End";

/// A server with these features, honest except for commands that `play` answers.
fn server(
    features: &'static str,
    play: impl Fn(&mut Session, &FtpCommand) -> bool + Send + Sync + 'static,
) -> Scripted {
    Scripted::new(Vec::new(), move |session, command| {
        if play(session, command) {
            return true;
        }
        match command.verb.as_str() {
            "FEAT" => session.reply(features),
            "MLST" | "MDTM" => session.reply("550 no such file"),
            "SIZE" => match session.stored().len() {
                0 => session.reply("550 no such file"),
                length => session.reply(&format!("213 {length}")),
            },
            "CKSM" => {
                let digest = checksum(&session.stored(), &command.rest);
                session.reply(&format!("213 {digest}"));
            }
            _ => return false,
        }
        true
    })
}

/// A server with these features, honest except for the verbs with a reply here.
fn answering<const N: usize>(features: &'static str, replies: [(&'static str, &'static str); N]) -> Scripted {
    server(features, move |session, command| session.answer(command, &replies))
}

/// A server with these features that handles a file to be stored by `store`, after reply 150.
fn storing(features: &'static str, store: fn(&mut Session)) -> Scripted {
    server(features, move |session, command| {
        let stores = matches!(command.verb.as_str(), "STOR" | "ESTO");
        if stores {
            session.reply("150 receiving");
            store(session);
        }
        stores
    })
}

/// Computes the checksum that CKSM requests: algorithm, offset and length, or -1 for all.
fn checksum(stored: &[u8], rest: &str) -> String {
    let mut words = rest.split(' ').skip(1).map(|word| word.parse::<i64>().unwrap());
    let (offset, length) = (words.next().unwrap() as usize, words.next().unwrap());
    let end = usize::try_from(length).map_or(stored.len(), |length| stored.len().min(offset + length));
    Sha256::digest(&stored[offset.min(end)..end]).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn send(server: &Scripted, size: usize, options: &[&str]) -> Ended {
    let run = put(&content(size, 1)).args(["--json", "--stall-timeout", "2s"]).args(options);
    run.args(["f", &server.url()]).run()
}

/// Checks that the upload fails with one of the codes, and that the server received no rename to
/// the final name.
#[track_caller]
fn fails(server: &Scripted, size: usize, codes: &[i32], word: &str) {
    let ended = send(server, size, &["--retries", "0"]);
    assert!(ended.status.code().is_some_and(|code| codes.contains(&code)), "{ended:?}");
    assert!(ended.error().contains(word), "'{word}' is missing: {ended:?}");
    assert_eq!(server.count("RNTO"), 0);
}

#[track_caller]
fn has_digest(ended: &Ended) -> bool {
    ended.done()["digest"].is_string()
}

#[test]
fn honest_server_is_compared_with() {
    for features in [BLOCKS, PLAIN] {
        let server = answering(features, []);
        let ended = send(&server, SIZE, &[]).ok();
        assert_eq!(has_digest(&ended), features == BLOCKS);
        assert!(server.stored() == content(SIZE, 1) && server.count("RNTO") == 1);
    }
}

#[test]
fn refused_or_wrong_checksum_is_an_error() {
    for (reply, code) in [("550 cannot read it", 73), ("553 no", 73), ("213 no digest", 76)] {
        fails(&answering(BLOCKS, [("CKSM", reply)]), SIZE, &[code], "refused CKSM");
    }
    let wrong = "213 0000000000000000000000000000000000000000000000000000000000000000";
    let server = answering(BLOCKS, [("CKSM", wrong)]);
    fails(&server, SIZE, &[65], "4 attempts");
    assert_eq!(server.count("ESTO") + server.count("STOR"), 5);
}

#[test]
fn temporarily_refused_checksum_is_requested_again() {
    let asks = AtomicUsize::new(0);
    let server = server(BLOCKS, move |session, command| {
        let is_first = command.verb == "CKSM" && asks.fetch_add(1, Ordering::SeqCst) == 0;
        is_first && session.answer(command, &[("CKSM", "451 busy")])
    });
    assert!(has_digest(&send(&server, SIZE, &[]).ok()));
}

#[test]
fn server_without_its_listed_checksums_or_without_size_causes_a_warning() {
    for (features, verb, reply, warning) in [
        (BLOCKS, "CKSM", "502 not implemented", "computes none"),
        (PLAIN, "SIZE", "500 unknown", "does not tell the file's size"),
    ] {
        let server = answering(features, [(verb, reply)]);
        let ended = send(&server, SIZE, &[]).ok();
        assert!(!has_digest(&ended) && ended.stdout.contains(warning), "{ended:?}");
        assert!(server.stored() == content(SIZE, 1));
    }
}

#[test]
fn success_before_the_data_is_none() {
    for (features, size) in [(BLOCKS, 8 << 20), (PLAIN, 8 << 20), (PLAIN, 1000)] {
        fails(&storing(features, |session| session.reply("226 stored")), size, &[75, 76], "");
    }
}

/// Returns whether a client of the port has closed its end while bytes are still in flight: state
/// FIN_WAIT1 in proc_net_tcp(5).
fn has_closed(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let peer = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|remote| remote.ends_with(&peer)) && fields.next() == Some("04")
    })
}

#[test]
fn success_with_bytes_still_in_flight_is_none() {
    // The server receives so little that the rest waits in the client's kernel.
    let listener = Mutex::new(None);
    let server = server(PLAIN, move |session, command| {
        match command.verb.as_str() {
            "EPSV" => {
                let socket =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
                socket.set_recv_buffer_size(4096).unwrap();
                socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
                socket.listen(1).unwrap();
                let own = TcpListener::from(socket);
                session.reply(&format!("229 here (|||{}|)", own.local_addr().unwrap().port()));
                *listener.lock().unwrap() = Some(own);
            }
            "STOR" => {
                session.reply("150 receiving");
                let port = listener.lock().unwrap().as_ref().map(|own| own.local_addr().unwrap().port());
                while !has_closed(port.unwrap()) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                session.reply("226 stored");
            }
            "SIZE" if session.number == 0 && command.rest.contains("longhaul") => session.reply("213 200000"),
            _ => return false,
        }
        true
    });
    fails(&server, 200_000, &[75], "has not received");
}

#[test]
fn store_whose_success_is_never_reported_or_that_is_refused_midway_is_an_error() {
    for features in [BLOCKS, PLAIN] {
        let unreported = storing(features, |session| assert!(session.receive(0, &mut Vec::new())));
        fails(&unreported, SIZE, &[75], "storing the file");
        let failed = storing(features, |session| {
            session.receive(0, &mut Vec::new());
            session.reply("451 write error");
        });
        fails(&failed, SIZE, &[75], "451 write error");
        for word in ["no space left", "make room"] {
            let full = storing(features, |session| {
                for mut data in session.data(1) {
                    let _ = data.0.read_exact(&mut vec![0; 1 << 20]);
                    session.reply("552 no space left");
                }
            });
            fails(&full, 16 << 20, &[74], word);
        }
    }
}

#[test]
fn short_file_is_no_success() {
    let server = server(PLAIN, |session, command| {
        !session.stored().is_empty() && session.answer(command, &[("SIZE", "213 1000")])
    });
    fails(&server, SIZE, &[75], "");
}
