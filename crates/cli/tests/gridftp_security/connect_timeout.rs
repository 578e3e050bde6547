//! `--connect-timeout` holds for all that precedes the use of a connection: greeting, security exchange, TLS handshakes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use crate::close_notify::{DataTls, serve};
use crate::support::{Ended, content, get};

/// Accepts connections, and sends each of these replies: the first as a greeting, the others after a line of the client. Then it is silent.
fn silent_after(replies: &'static [(Duration, &str)]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut input = BufReader::new(stream.try_clone().unwrap());
                for (delay, reply) in replies {
                    std::thread::sleep(*delay);
                    // A client that closes ends the session.
                    let sent = stream.write_all(reply.as_bytes());
                    if sent.is_err() || input.read_until(b'\n', &mut Vec::new()).is_err() {
                        return;
                    }
                }
                let _ = input.read_to_end(&mut Vec::new());
            });
        }
    });
    address
}

#[track_caller]
fn ends_in_time(url: &str, options: &[&str], words: &[&str]) -> Ended {
    let run = get().args(["--connect-timeout", "1s", "--retries", "0", "-o", "f"]).args(options).args([url]);
    let ended = run.run().fails(75, words);
    assert!(ended.time < Duration::from_secs(3) && !run.path("f").exists(), "{ended:?}");
    ended
}

#[test]
fn connect_timeout_holds_for_greeting_and_handshake_together() {
    const SLOW: Duration = Duration::from_millis(700);
    for (replies, scheme, step) in [
        (&[][..], "ftp", "its greeting"),
        (&[], "ftps", "its greeting"),
        (&[(Duration::ZERO, "220 ready\r\n")], "ftps", "AUTH"),
        (
            &[(Duration::ZERO, "220 ready\r\n"), (Duration::ZERO, "234 begin TLS\r\n")],
            "ftps",
            "the TLS handshake",
        ),
        (&[(SLOW, "220 ready\r\n"), (SLOW, "234 begin TLS\r\n")], "ftps", "AUTH"),
    ] {
        let address = silent_after(replies);
        let words = [step, &address.to_string(), "within 1s", "--connect-timeout"];
        ends_in_time(&format!("{scheme}://{address}/f"), &[], &words);
    }
}

#[test]
fn connect_timeout_holds_for_the_handshake_of_a_data_connection() {
    let dir = tempfile::tempdir().unwrap();
    let address = serve(dir.path(), content(1000, 1), DataTls::IsSilent);
    let url = format!("ftps://localhost:{}/f", address.port());
    let ca = dir.path().join("ca.pem");
    let words = ["the TLS handshake of a data connection", &address.to_string(), "--connect-timeout"];
    ends_in_time(&url, &["--cacert", ca.to_str().unwrap()], &words);
}
