//! The network does not hold the command up, whatever it does.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::doctor::command::{about_path, assert_unread, doctor, finding, in_lab, json, text};
use crate::support::names;

/// Resolver and kernel themselves wait for 10 s or more; the command for a second.
const MOST: Duration = Duration::from_secs(8);

#[test]
fn report_begins_with_the_rates() {
    let home = tempfile::tempdir().unwrap();
    let output = about_path(home.path(), &[]);
    assert!([Some(0), Some(1)].contains(&output.status.code()), "{:?}", output.status);
    let text = text(&output.stdout);
    let lines: Vec<_> = text.lines().take(4).collect();
    let path = "For 10.0 Gbit/s (given) at an RTT of 200 ms (given): 238.4 MiB in flight.";
    assert!(lines[0].starts_with(path), "{text}");
    assert!(lines[1].starts_with("One stream receives about "), "{text}");
    assert!(lines[2].starts_with("One stream sends about ") && lines[2].contains(" / 200 ms)"), "{text}");
    assert!(lines[3].contains(" to consider, ") && lines[3].ends_with(" not read"), "{text}");
    assert!(names(home.path()).is_empty(), "nothing is left behind");
}

#[test]
fn host_that_does_not_resolve_is_a_problem_and_the_rest_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let output = doctor(home.path(), &["--no-disk-test", "http://nowhere.invalid/"]);
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output.stdout);
    let problem = text.lines().find(|line| line.starts_with("PROBLEM")).unwrap();
    assert!(problem.contains("server address") && problem.contains("nowhere.invalid"), "{text}");
    assert!(text.contains("fix: getent hosts nowhere.invalid"), "{text}");
    assert!(text.contains("tcp_rmem") && text.contains("One stream sends"), "{text}");
}

/// The lab has no host of this address: packets to it are lost.
#[test]
fn name_service_that_does_not_answer_is_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let shell = "exec unshare --mount --propagation private sh -ec '
        echo nameserver 198.18.0.53 > $HOME/resolv.conf
        mount --bind $HOME/resolv.conf /etc/resolv.conf
        before=$(date +%s%3N)
        $LONGHAUL doctor --no-disk-test --json http://some.example/ || [ $? = 1 ]
        echo $(($(date +%s%3N) - before)) > $HOME/took'";
    let Some(output) = in_lab(home.path(), shell) else { return };
    let report = json(&output);
    let address = finding(&report, "server address");
    assert_eq!(address["severity"], "problem");
    let took = std::fs::read_to_string(home.path().join("took")).unwrap();
    assert!(Duration::from_millis(took.trim().parse().unwrap()) < MOST, "{took} ms: {address}");
}

#[test]
fn host_that_drops_everything_leaves_the_assumed_rtt() {
    // A full queue of connections: the kernel drops what comes then.
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let _queue: Vec<_> = std::iter::from_fn(connect).collect();
    let home = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let report = json(&doctor(home.path(), &["--no-disk-test", "--json", &format!("http://{address}/")]));
    assert!(start.elapsed() < MOST, "{:?}", start.elapsed());
    assert_eq!(report["target"]["rtt_origin"], "assumed");
    assert_unread(&report, "RTT", "timed out");
    finding(&report, "tcp_rmem");
}
