//! `--connect-timeout` holds for all that precedes the use of a connection: greeting, security exchange, TLS handshakes. Those of data
//! connections may take `--stall-timeout`, too.

use std::net::SocketAddr;
use std::path::Path;
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::gridftp_security::close_notify::{DataTls, REFUSAL, serve};
use crate::support::{Ended, FtpCommand, Scripted, Session, content, get};

/// Sends a greeting and a reply to AUTH, each after `delay`, where there are as many `replies`. Then it is silent.
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

/// The URL of a file on a server that treats data connections so, its address, and the options for it.
fn ftps(dir: &Path, data_tls: DataTls) -> (String, SocketAddr, [String; 2]) {
    let address = serve(dir, content(1000, 1), data_tls);
    let ca = dir.join("ca.pem").to_str().unwrap().to_owned();
    (format!("ftps://localhost:{}/f", address.port()), address, ["--cacert".to_owned(), ca])
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
        let dir = tempfile::tempdir().unwrap();
        let (url, _, options) = ftps(dir.path(), data_tls);
        let run = get().args(["--retries", "0", "-o", "f", &url]).args(options);
        run.run().fails(76, &["refused RETR", REFUSAL]);
    }
}

#[test]
fn end_that_is_reported_before_the_handshake_of_the_data_connection_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (url, _, options) = ftps(dir.path(), DataTls::IsLate);
    let run = get().args(["--retries", "0", "-o", "f", &url]).args(options);
    run.fetches(&content(1000, 1));
}
