//! `--connect-timeout` holds for all that precedes the use of a connection: greeting, security exchange, TLS handshakes. Those of data
//! connections may take `--stall-timeout`, too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use crate::gridftp_security::close_notify::{DataTls, REFUSAL, serve};
use crate::support::{Ended, content, get, same};

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
fn silent_server_is_waited_for_as_long_as_connect_timeout_says_or_else_a_shorter_stall_timeout() {
    let address = silent_after(&[]);
    let url = format!("ftp://{address}/f");
    let fetch = |options: &[&str]| get().args(["--retries", "0", "-o", "f", &url]).args(options).run();
    let ended = fetch(&["--stall-timeout", "1s"]).fails(75, &["its greeting", "within 1s"]);
    assert!(ended.time < Duration::from_secs(3), "{ended:?}");
    fetch(&["--stall-timeout", "1s", "--connect-timeout", "2s"]).fails(75, &["its greeting", "within 2s"]);
}

/// Options, and the URL of a file on a server that treats data connections so.
fn ftps(dir: &Path, data_tls: DataTls) -> (SocketAddr, [String; 3]) {
    let address = serve(dir, content(1000, 1), data_tls);
    let ca = dir.join("ca.pem").to_str().unwrap().to_owned();
    (address, ["--cacert".to_owned(), ca, format!("ftps://localhost:{}/f", address.port())])
}

#[test]
fn handshake_of_a_data_connection_has_the_longer_of_both_timeouts() {
    let dir = tempfile::tempdir().unwrap();
    let (address, args) = ftps(dir.path(), DataTls::IsSilent);
    let words = ["the TLS handshake of a data connection (127.0.0.1:", "within 1s", "--connect-timeout"];
    let ended = ends_in_time(&args[2], &["--stall-timeout", "1s", &args[0], &args[1]], &words);
    assert!(!ended.stderr.contains(&address.to_string()), "the address of the control connection: {ended:?}");
    let options = ["--retries", "0", "-o", "f", "--connect-timeout", "1s", "--stall-timeout", "2s"];
    get().args(options).args(&args).run().fails(75, &["a data connection", "within 2s"]);
}

#[test]
fn refusal_of_a_transfer_takes_precedence_over_the_handshake_of_its_data_connection() {
    for data_tls in [DataTls::IsRefused, DataTls::IsReset] {
        let dir = tempfile::tempdir().unwrap();
        let (_, args) = ftps(dir.path(), data_tls);
        let ended = get().args(["--retries", "0", "-o", "f"]).args(&args).run();
        let ended = ended.fails(76, &["refused RETR", REFUSAL]);
        assert!(ended.time < Duration::from_secs(10), "{ended:?}");
    }
}

#[test]
fn end_that_is_reported_before_the_handshake_of_the_data_connection_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (_, args) = ftps(dir.path(), DataTls::IsLate);
    let run = get().args(["--retries", "0", "-o", "f"]).args(&args);
    run.run().ok();
    same(run.path("f"), &content(1000, 1));
}
