//! A server with faulty storage: the file never gets its name, or a warning names the missing comparison.

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

/// Computes the checksum that CKSM requests: algorithm, offset and length, or -1 for all.
fn checksum(stored: &[u8], rest: &str) -> String {
    let mut words = rest.split(' ').skip(1).map(|word| word.parse::<i64>().unwrap());
    let (offset, length) = (words.next().unwrap() as usize, words.next().unwrap());
    let end = usize::try_from(length).map_or(stored.len(), |length| stored.len().min(offset + length));
    Sha256::digest(&stored[offset.min(end)..end]).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn send(server: &Scripted, size: usize, options: &[&str]) -> Ended {
    let run = put(&content(size, 1)).args(["--json", "--stall-timeout", "2s"]).args(options);
    let ended = run.args(["f", &server.url()]).run();
    assert!(ended.time < Duration::from_secs(60), "{ended:?}");
    ended
}

/// Checks that the upload fails, and that the server received no rename to the final name.
#[track_caller]
fn fails(server: &Scripted, size: usize, code: i32, words: &[&str]) {
    send(server, size, &["--retries", "0"]).fails(code, words);
    assert_eq!(server.count("RNTO"), 0);
}

#[track_caller]
fn digest(ended: &Ended) -> Option<String> {
    ended.done()["digest"].as_str().map(str::to_owned)
}

#[test]
fn an_honest_server_is_compared_with() {
    for features in [BLOCKS, PLAIN] {
        let server = server(features, |_, _| false);
        let ended = send(&server, SIZE, &[]).ok();
        assert_eq!(digest(&ended).is_some(), features == BLOCKS);
        assert!(server.stored() == content(SIZE, 1) && server.count("RNTO") == 1);
    }
}

#[test]
fn a_checksum_that_is_refused_is_an_error() {
    for (reply, code) in [("550 cannot read it", 73), ("553 no", 73), ("213 no digest", 76)] {
        let server = server(BLOCKS, move |session, command| {
            let asked = command.verb == "CKSM";
            if asked {
                session.reply(reply);
            }
            asked
        });
        fails(&server, SIZE, code, &["refused CKSM"]);
    }
}

#[test]
fn temporarily_refused_checksum_is_requested_again() {
    let asks = AtomicUsize::new(0);
    let server = server(BLOCKS, move |session, command| {
        let busy = command.verb == "CKSM" && asks.fetch_add(1, Ordering::SeqCst) == 0;
        if busy {
            session.reply("451 busy");
        }
        busy
    });
    assert!(digest(&send(&server, SIZE, &[]).ok()).is_some());
}

#[test]
fn server_without_its_listed_checksums_causes_a_warning() {
    let server = server(BLOCKS, |session, command| {
        let asked = command.verb == "CKSM";
        if asked {
            session.reply("502 not implemented");
        }
        asked
    });
    let ended = send(&server, SIZE, &[]).ok();
    assert!(digest(&ended).is_none() && ended.stdout.contains("computes none"), "{ended:?}");
}

#[test]
fn a_wrong_checksum_ends_the_upload() {
    let server = server(BLOCKS, |session, command| {
        let asked = command.verb == "CKSM";
        if asked {
            session.reply(&format!("213 {}", "0".repeat(64)));
        }
        asked
    });
    fails(&server, SIZE, 65, &["4 attempts"]);
    assert_eq!(server.count("ESTO") + server.count("STOR"), 5);
}

#[test]
fn success_before_the_data_is_none() {
    for (features, size) in [(BLOCKS, 8 << 20), (PLAIN, 8 << 20), (PLAIN, 1000)] {
        let server = server(features, |session, command| {
            let stores = matches!(command.verb.as_str(), "STOR" | "ESTO");
            if stores {
                session.reply("150 receiving");
                session.reply("226 stored");
            }
            stores
        });
        let ended = send(&server, size, &["--retries", "0"]);
        assert!(matches!(ended.status.code(), Some(75 | 76)), "{ended:?}");
        assert_eq!(server.count("RNTO"), 0);
    }
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
                std::thread::sleep(Duration::from_millis(500));
                session.reply("226 stored");
            }
            "SIZE" if session.number == 0 && command.rest.contains("longhaul") => session.reply("213 200000"),
            _ => return false,
        }
        true
    });
    fails(&server, 200_000, 75, &["has not received"]);
}

#[test]
fn success_that_is_never_reported_is_not_waited_for_long() {
    for features in [BLOCKS, PLAIN] {
        let server = server(features, |session, command| {
            let stores = matches!(command.verb.as_str(), "STOR" | "ESTO");
            if stores {
                session.reply("150 receiving");
                session.take_silently();
            }
            stores
        });
        fails(&server, SIZE, 75, &["storing the file"]);
    }
}

#[test]
fn a_store_that_is_refused_midway_is_named() {
    for features in [BLOCKS, PLAIN] {
        let server = server(features, |session, command| {
            let stores = matches!(command.verb.as_str(), "STOR" | "ESTO");
            if stores {
                session.reply("150 receiving");
                for mut data in session.data(1) {
                    let _ = data.0.read_exact(&mut vec![0; 1 << 20]);
                    session.reply("552 no space left");
                }
            }
            stores
        });
        fails(&server, 16 << 20, 74, &["no space left", "make room"]);
    }
}

#[test]
fn a_passive_reply_that_names_another_host_is_refused() {
    let server = server(PLAIN, |session, command| {
        match command.verb.as_str() {
            "EPSV" => session.reply("500 unknown"),
            "PASV" => session.reply("227 Entering Passive Mode (198,51,100,7,200,1)"),
            _ => return false,
        }
        true
    });
    fails(&server, SIZE, 76, &["198.51.100.7"]);
    assert_eq!(server.count("STOR"), 0);
}

#[test]
fn server_without_size_causes_a_warning() {
    let server = server(PLAIN, |session, command| {
        let asked = command.verb == "SIZE";
        if asked {
            session.reply("500 unknown");
        }
        asked
    });
    let ended = send(&server, SIZE, &[]).ok();
    assert!(ended.stdout.contains("does not tell the file's size"), "{ended:?}");
    assert!(server.stored() == content(SIZE, 1));
}

#[test]
fn a_short_file_is_no_success() {
    let server = server(PLAIN, |session, command| {
        let asked = command.verb == "SIZE" && !session.stored().is_empty();
        if asked {
            session.reply("213 1000");
        }
        asked
    });
    fails(&server, SIZE, 75, &[]);
}
