//! Running processes, observed from outside.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::support::{explain, fails, objects};

#[test]
fn program_that_reads_slowly_is_the_limit_of_its_own_download() {
    let home = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sender = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // Until the reader is gone.
        while socket.write_all(&[7; 65_536]).is_ok() {}
    });
    // Another program: bash, which reads 100 kB a second.
    let script =
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}; while head -c 10000 <&3 >/dev/null; do sleep 0.1; done");
    let mut child = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let explained = explain(home.path(), &["--pid", &pid, "--for", "3s", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    sender.join().unwrap();
    let flow = objects(&explained).remove(0);
    assert_eq!((&flow["sends"], &flow["limited_by"]), (&false.into(), &"application".into()), "{flow}");
}

#[test]
fn process_that_is_not_there_or_idle_has_words() {
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["--pid", "4194305"], 66, &["there is no process 4194305"]);
    fails(home.path(), &["--pid", "0"], 64, &["--pid"]);
    fails(home.path(), &["--pid", "1", "--for", "0s"], 64, &["--for"]);
    let mut idle = Command::new("sleep").arg("20").spawn().unwrap();
    fails(
        home.path(),
        &["--pid", &idle.id().to_string(), "--for", "100ms"],
        66,
        &["has moved data", "--for"],
    );
    idle.kill().unwrap();
    idle.wait().unwrap();
}
