//! Without the disk test the command ends within 3 s, whatever the network does.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::doctor::command::{LONG_FAT, doctor, finding, in_lab, json, text, unread};

/// The whole command.
const MOST: Duration = Duration::from_secs(3);

#[test]
fn report_takes_less_than_three_seconds_and_begins_with_the_rates() {
    let home = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let output = doctor(home.path(), &[&LONG_FAT[..], &["--no-disk-test"]].concat()).output().unwrap();
    assert!(start.elapsed() < MOST, "{:?}", start.elapsed());
    assert!([Some(0), Some(1)].contains(&output.status.code()), "{:?}", output.status);
    let text = text(&output.stdout);
    assert!(
        text.starts_with("For 10.0 Gbit/s (given) at an RTT of 200 ms (given): 238.4 MiB in flight."),
        "{text}"
    );
    let first: Vec<_> = text.lines().skip(1).take(3).collect();
    assert!(first[0].starts_with("One stream receives about "), "{text}");
    assert!(first[1].starts_with("One stream sends about ") && first[1].contains(" / 200 ms)"), "{text}");
    assert!(first[2].contains(" to consider, ") && first[2].ends_with(" not read"), "{text}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn host_that_does_not_resolve_is_a_problem_and_the_rest_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let start = Instant::now();
    let output = doctor(home.path(), &["--no-disk-test", "http://nowhere.invalid/"]).output().unwrap();
    assert!(start.elapsed() < MOST, "{:?}", start.elapsed());
    assert_eq!(output.status.code(), Some(1));
    let text = text(&output.stdout);
    let problem = text.lines().find(|line| line.starts_with("PROBLEM")).unwrap();
    assert!(problem.contains("server address") && problem.contains("nowhere.invalid"), "{text}");
    assert!(text.contains("fix: getent hosts nowhere.invalid"), "{text}");
    assert!(text.contains("tcp_rmem") && text.contains("One stream sends"), "{text}");
}

/// The lab has no host of this address: packets to it are lost. The resolver itself would wait for 10 s or more.
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
    // Its queue of connections is full, so that the kernel drops each SYN.
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address);
        socket
    };
    let _queue: Vec<_> = std::iter::repeat_with(fill).take(8).collect();
    std::thread::sleep(Duration::from_millis(20));
    let home = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", address.as_socket().unwrap());
    let start = Instant::now();
    let report = json(&doctor(home.path(), &["--no-disk-test", "--json", &url]).output().unwrap());
    assert!(start.elapsed() < MOST, "{:?}", start.elapsed());
    assert_eq!(report["target"]["rtt_origin"], "assumed");
    let rtt = unread(&report, "RTT").unwrap();
    assert!(rtt["reason"].as_str().unwrap().contains("timed out") && rtt["would_show"].is_string(), "{rtt}");
    assert_eq!(finding(&report, "tcp_rmem")["name"], "tcp_rmem");
}
