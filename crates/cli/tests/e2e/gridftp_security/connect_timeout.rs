//! The end of a file of unknown size over TLS requires close_notify, as a FIN can be forged; vsftpd
//! 3.0.3 and proftpd 1.3.8 send it (tested 2026-11-24), but always report the size.
//! `--connect-timeout` holds for all that precedes the use of a connection: greeting, security
//! exchange, TLS handshakes. Those of data connections may take `--stall-timeout`, too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{scope, sleep, spawn};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::{Ended, FtpCommand, Get, Scripted, Session, content, get, server_config};

const SIZE: usize = (1 << 20) + 55;
/// The time after which a late server answers: usually after the client has received what was sent
/// before.
const LATE: Duration = Duration::from_millis(400);

/// How the server treats its data connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataTls {
    /// It ends TLS with close_notify.
    Closes,
    /// It ends the connection without close_notify.
    BreaksOff,
    /// It never answers the handshake.
    IsSilent,
    /// It never answers the handshake, and refuses the transfer on the control connection.
    IsRefused,
    /// It resets the connection, and then refuses the transfer on the control connection.
    IsReset,
    /// It reports the end of the transfer, then answers the handshake and ends TLS with
    /// close_notify.
    IsLate,
}

/// Why the server refuses a transfer after its reply 150, as vsftpd does with `require_ssl_reuse`.
pub(crate) const REFUSAL: &str = "522 SSL connection failed; session reuse required";

#[test]
fn an_end_without_close_notify_is_no_end_of_a_file() {
    for data_tls in [DataTls::Closes, DataTls::BreaksOff] {
        let run = fetch(data_tls);
        if data_tls == DataTls::Closes {
            run.fetches(&content(SIZE, 22));
        } else {
            run.fails_unnamed(75, &["without closing TLS"]);
        }
    }
}

/// Serves a file of unknown size over FTPS, by a certificate of the authority `ca.pem` in `dir`.
pub(crate) fn serve(dir: &Path, bytes: Vec<u8>, data_tls: DataTls) -> SocketAddr {
    let settings = server_config(dir);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (settings, bytes) = (Arc::clone(&settings), bytes.clone());
            spawn(move || {
                // A client that closes ends the session.
                let _ = session(stream, &settings, &bytes, data_tls);
            });
        }
    });
    address
}

fn session(
    mut clear: TcpStream,
    settings: &Arc<ServerConfig>,
    bytes: &[u8],
    data_tls: DataTls,
) -> std::io::Result<()> {
    clear.write_all(b"220 scripted\r\n")?;
    BufReader::new(clear.try_clone()?).read_line(&mut String::new())?;
    clear.write_all(b"234 begin TLS\r\n")?;
    let tls = |socket| StreamOwned::new(ServerConnection::new(Arc::clone(settings)).unwrap(), socket);
    let mut control = BufReader::new(tls(clear));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let passive = format!("229 passive (|||{}|)", listener.local_addr()?.port());
    loop {
        let mut line = String::new();
        if control.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut reply = |text: &str| control.get_mut().write_all(format!("{text}\r\n").as_bytes());
        match line.split([' ', '\r']).next().unwrap_or_default() {
            "USER" => reply("331 password")?,
            "PASS" => reply("230 in")?,
            "TYPE" | "PBSZ" | "PROT" => reply("200 done")?,
            "REST" => reply("350 go on")?,
            "EPSV" => reply(&passive)?,
            "RETR" => {
                reply("150 sending")?;
                let mut data = listener.accept()?.0;
                match data_tls {
                    DataTls::IsReset => {
                        // Unread bytes, those of the client's first message, make the kernel reset
                        // it.
                        data.read_exact(&mut [0])?;
                        drop(data);
                        sleep(LATE);
                        reply(REFUSAL)?;
                        continue;
                    }
                    DataTls::IsRefused => reply(REFUSAL)?,
                    DataTls::IsLate => {
                        reply("226 complete")?;
                        sleep(LATE);
                    }
                    DataTls::Closes | DataTls::BreaksOff | DataTls::IsSilent => {}
                }
                if matches!(data_tls, DataTls::IsSilent | DataTls::IsRefused) {
                    // Until the client closes it.
                    data.read_to_end(&mut Vec::new())?;
                    return Ok(());
                }
                let mut data = tls(data);
                data.write_all(bytes)?;
                if data_tls != DataTls::BreaksOff {
                    data.conn.send_close_notify();
                }
                data.flush()?;
                if data_tls != DataTls::IsLate {
                    reply("226 complete")?;
                }
            }
            _ => reply("500 unknown")?,
        }
    }
}

/// Sends a greeting and a reply to AUTH, each after `delay`, where there are as many `replies`.
/// Then it is silent.
fn silent_after(delay: Duration, replies: &'static [&str]) -> SocketAddr {
    let play = move |session: &mut Session, command: &FtpCommand| {
        let position = usize::from(!command.verb.is_empty());
        match replies.get(position).filter(|_| position == 0 || command.verb == "AUTH") {
            Some(reply) => {
                sleep(delay);
                session.reply(reply);
            }
            None => session.until_closed(),
        }
        true
    };
    Scripted::new(Vec::new(), play).address
}

/// Fetches without retries; fails unless the run does, with an error that contains `words`.
#[track_caller]
fn times_out(options: &[&str], url: &str, words: &[&str]) -> Ended {
    let run = get().args(["--retries", "0", "-o", "f"]).args(options).args([url]);
    let ended = run.run().fails(75, words);
    assert!(!run.path("f").exists(), "{ended:?}");
    ended
}

#[test]
fn connect_timeout_holds_for_greeting_and_handshake_together() {
    const PROMPT: Duration = Duration::ZERO;
    const SLOW: Duration = Duration::from_millis(700);
    let begins: &[&str] = &["220 ready", "234 begin TLS"];
    let check = |delay, replies, scheme: &str, step: &str| {
        let address = silent_after(delay, replies);
        let words = [step, &address.to_string(), "within 1s", "--connect-timeout"];
        times_out(&["--connect-timeout", "1s"], &format!("{scheme}://{address}/f"), &words)
    };
    scope(|threads| {
        threads.spawn(|| check(PROMPT, &[], "ftp", "its greeting"));
        threads.spawn(|| check(PROMPT, &[], "ftps", "its greeting"));
        threads.spawn(|| check(PROMPT, &begins[..1], "ftps", "AUTH"));
        threads.spawn(|| check(PROMPT, begins, "ftps", "the TLS handshake"));
        // Greeting and reply to AUTH take longer together, but neither of them alone.
        threads.spawn(|| {
            let ended = check(SLOW, begins, "ftps", "");
            assert!(!ended.error().contains("the TLS handshake"), "{ended:?}");
        });
    });
}

#[test]
fn silent_server_is_waited_for_as_long_as_connect_timeout_says_or_else_a_shorter_stall_timeout() {
    let url = format!("ftp://{}/f", silent_after(Duration::ZERO, &[]));
    times_out(&["--stall-timeout", "1s"], &url, &["its greeting", "within 1s"]);
    let options = ["--stall-timeout", "1s", "--connect-timeout", "2s"];
    times_out(&options, &url, &["its greeting", "within 2s"]);
}

/// The URL of a file on a server that treats data connections so, its address, and the options for
/// it.
fn ftps(dir: &Path, data_tls: DataTls) -> (String, SocketAddr, [String; 2]) {
    let address = serve(dir, content(SIZE, 22), data_tls);
    let ca = dir.join("ca.pem").to_str().unwrap().to_owned();
    (format!("ftps://localhost:{}/f", address.port()), address, ["--cacert".to_owned(), ca])
}

/// Creates a fetch without retries from a server that treats data connections so.
fn fetch(data_tls: DataTls) -> Get {
    let run = get();
    let (url, _, options) = ftps(run.dir(), data_tls);
    run.args(["--retries", "0", "-o", "f", &url]).args(options)
}

#[test]
fn handshake_of_a_data_connection_has_the_longer_of_both_timeouts() {
    let dir = tempfile::tempdir().unwrap();
    let (url, address, [cacert, ca]) = ftps(dir.path(), DataTls::IsSilent);
    let options = [&cacert, &ca, "--connect-timeout", "1s", "--stall-timeout"];
    let words = ["the TLS handshake of a data connection (127.0.0.1:", "within 1s", "--connect-timeout"];
    let ended = times_out(&[&options[..], &["1s"]].concat(), &url, &words);
    assert!(!ended.stderr.contains(&address.to_string()), "the address of the control connection: {ended:?}");
    times_out(&[&options[..], &["2s"]].concat(), &url, &["a data connection", "within 2s"]);
}

#[test]
fn refusal_of_a_transfer_takes_precedence_over_the_handshake_of_its_data_connection() {
    for data_tls in [DataTls::IsRefused, DataTls::IsReset] {
        fetch(data_tls).run().fails(76, &["refused RETR", REFUSAL]);
    }
}

#[test]
fn end_that_is_reported_before_the_handshake_of_the_data_connection_counts() {
    fetch(DataTls::IsLate).fetches(&content(SIZE, 22));
}
