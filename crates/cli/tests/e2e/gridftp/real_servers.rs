//! `get` from real servers: Globus over several data connections, vsftpd and proftpd by ranges over several logins.

use std::fs;

use rustix::process::Signal;

use crate::support::{
    Get, Globus, LoggedTransfer, Nginx, Proftpd, Vsftpd, content, get, partial_files, same,
};

const SIZE: usize = (24 << 20) + 4321;

/// Slow enough to be killed midway, and to have several chunks.
const SLOW: [&str; 2] = ["--limit", "48Mbit"];

fn is_retrieval(transfer: &LoggedTransfer) -> bool {
    matches!(transfer.kind.as_str(), "ERET" | "RETR")
}

/// Returns whether the journal of `f` lists committed ranges.
fn has_committed(run: &Get) -> bool {
    let journal = fs::read(run.path("f.longhaul-journal")).ok();
    let journal = journal.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok());
    journal.is_some_and(|journal| journal["committed"].as_array().is_some_and(|ranges| !ranges.is_empty()))
}

/// Kills a transfer after its first commit, and resumes it.
fn killed_and_resumed(url: &str, streams: &str, bytes: &[u8]) {
    let run = get().args(["--streams", streams, "--app-buffer", "1MiB", "-o", "f", url]).args(SLOW);
    let mut running = run.start();
    running.until("anything was committed", || has_committed(&run));
    running.signal(Signal::KILL);
    assert_eq!(running.end().status.code(), None);
    assert!(!run.path("f").exists());
    let run = run.again(["--streams", streams, "--json", "-o", "f", url]);
    let done = run.run().ok().done();
    assert!(done["resumed"].as_u64().unwrap() > 0, "{done}");
    same(run.path("f"), bytes);
    assert!(partial_files(run.dir()).is_empty());
}

#[test]
fn globus_sends_over_as_many_connections_as_were_asked_for() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 1);
    globus.file("f", &bytes);
    for streams in [1, 4] {
        let run = get().args(["--json", "--streams", &streams.to_string(), "-o", "f", &globus.url("f")]);
        let done = run.run().ok().done();
        assert_eq!((done["bytes"].as_u64(), done["streams"].as_u64()), (Some(SIZE as u64), Some(streams)));
        same(run.path("f"), &bytes);
        let logged =
            globus.logged(1, |transfer| is_retrieval(transfer) && u64::from(transfer.streams) == streams);
        assert!(logged.iter().all(|transfer| transfer.code == 226), "{logged:?}");
        assert_eq!(logged.iter().map(|transfer| transfer.bytes).sum::<u64>(), SIZE as u64, "{logged:?}");
    }
}

#[test]
fn globus_sends_with_the_buffer_that_the_user_gives() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 10);
    globus.file("f", &bytes);
    let run = get().args(["--streams", "2", "--recv-buffer", "300KiB", "-o", "f", &globus.url("f")]);
    run.run().ok();
    same(run.path("f"), &bytes);
    let logged = globus.logged(1, is_retrieval);
    // The kernel doubles the requested size (socket(7)).
    assert!(logged.iter().all(|transfer| transfer.buffer == 600 << 10), "{logged:?}");
}

#[test]
fn every_data_connection_is_an_event_and_the_digest_is_compared() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 2);
    globus.file("f", &bytes);
    let digest = format!("blake3:{}", blake3::hash(&bytes).to_hex());
    let run = get().args(["--json", "--streams", "3", "--checksum", &digest, "-o", "f", &globus.url("f")]);
    let ended = run.run().ok();
    let events = ended.json();
    let connected = events.iter().filter(|event| event["event"] == "connected").count();
    assert_eq!((connected, ended.done()["digest"].as_str()), (3, Some(digest.as_str())));
    let wrong = format!("blake3:{}", "0".repeat(64));
    let run = get().args(["--checksum", &wrong, "-o", "f", &globus.url("f")]);
    run.run().fails(65, &["checksum"]);
}

#[test]
fn globus_transfer_resumes_after_a_kill() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 3);
    globus.file("f", &bytes);
    killed_and_resumed(&globus.url("f"), "4", &bytes);
}

#[test]
fn apt_changes_the_number_of_connections_from_chunk_to_chunk() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(3 * SIZE, 4);
    globus.file("f", &bytes);
    let url = globus.url("f");
    // The first chunk has Delta x window / RTT bytes: without a small window the whole file, on this path.
    let tuner = ["--tuner", "apt", "--apt-n0", "1", "--apt-delta", "50ms", "--recv-buffer", "16KiB"];
    let run = get().args(["-o", "f", &url]).args(tuner).args(["--limit", "160Mbit"]);
    run.run().ok();
    same(run.path("f"), &bytes);
    let mut streams: Vec<_> =
        globus.logged(3, is_retrieval).iter().map(|transfer| transfer.streams).collect();
    // A chunk of the tuner may span several requests, whose length is limited too.
    streams.dedup();
    assert!(streams.starts_with(&[1, 2]), "{streams:?}");
}

#[test]
fn globus_and_http_mirror_share_a_file() {
    let Some(globus) = Globus::start() else { return };
    let Some(site) = Nginx::start() else { return };
    let bytes = content(SIZE, 5);
    globus.file("f", &bytes);
    site.file("f", &bytes);
    for urls in [[globus.url("f"), site.url("/f")], [site.url("/f"), globus.url("f")]] {
        let run = get().args(["--json", "-o", "f", &urls[0], "--mirror", &urls[1]]).args(SLOW);
        let ended = run.run().ok();
        same(run.path("f"), &bytes);
        let ports: std::collections::BTreeSet<_> = ended
            .json()
            .iter()
            .filter(|event| event["event"] == "connected")
            .map(|event| event["peer"].to_string())
            .collect();
        assert!(ports.len() >= 2, "{ports:?}");
    }
}

#[test]
fn a_file_that_changes_during_the_transfer_is_not_mixed() {
    let Some(globus) = Globus::start() else { return };
    let (old, new) = (content(SIZE, 6), content(SIZE, 7));
    globus.file("f", &old);
    let run = get().args(["--streams", "2", "--app-buffer", "1MiB", "-o", "f", &globus.url("f")]).args(SLOW);
    let mut running = run.start();
    running.until("anything was committed", || has_committed(&run));
    let other = globus.path("g");
    fs::write(&other, &new).unwrap();
    fs::rename(&other, globus.path("f")).unwrap();
    running.end().fails(65, &["changed on the server"]);
    assert!(!run.path("f").exists());
    let fresh = run.again(["--no-resume", "-o", "f", &globus.url("f")]);
    fresh.run().ok();
    same(fresh.path("f"), &new);
}

#[test]
fn missing_file_and_directory_are_reported() {
    let Some(globus) = Globus::start() else { return };
    globus.file("f", b"x");
    get().args([globus.url("none")]).run().fails(66, &["No such file"]);
    let directory = globus.url("").trim_end_matches('/').to_owned();
    get().args([directory]).run().fails(64, &["directory"]);
}

#[test]
fn empty_and_tiny_files_come_whole() {
    let Some(globus) = Globus::start() else { return };
    for (name, bytes) in [("empty", &b""[..]), ("tiny", b"x")] {
        globus.file(name, bytes);
        let run = get().args(["--streams", "4", "-o", "f", &globus.url(name)]);
        run.run().ok();
        same(run.path("f"), bytes);
    }
}

#[test]
fn many_files_share_few_logins() {
    let Some(globus) = Globus::start() else { return };
    let run = get();
    let mut urls = Vec::new();
    for index in 0..24 {
        globus.file(&format!("f{index}"), &content(300_000, index));
        urls.push(globus.url(&format!("f{index}")));
    }
    let run = run.args(["--parallel", "4"]).args(&urls);
    run.run().ok();
    (0..24).for_each(|index| same(run.path(format!("f{index}")), &content(300_000, index)));
    let logins = globus.log().matches("logged in").count();
    assert!(logins < 24, "{logins} logins for 24 files");
}

#[test]
fn vsftpd_is_fetched_by_ranges_and_resumes() {
    let Some(server) = Vsftpd::start() else { return };
    let bytes = content(SIZE, 8);
    server.file("f", &bytes);
    // Slow enough for every login to complete in time.
    let run = get().args(["--json", "--streams", "4", "-o", "f", &server.url("f"), "--limit", "96Mbit"]);
    let done = run.run().ok().done();
    assert!(done["streams"].as_u64().unwrap() > 1, "{done}");
    same(run.path("f"), &bytes);
    killed_and_resumed(&server.url("f"), "2", &bytes);
}

#[test]
fn proftpd_is_fetched_by_ranges_and_resumes() {
    let Some(server) = Proftpd::start() else { return };
    let bytes = content(SIZE, 9);
    server.file("f", &bytes);
    // Slow enough for every login to complete in time.
    let run = get().args(["--json", "--streams", "4", "-o", "f", &server.url("f"), "--limit", "96Mbit"]);
    let done = run.run().ok().done();
    assert!(done["streams"].as_u64().unwrap() > 1, "{done}");
    same(run.path("f"), &bytes);
    killed_and_resumed(&server.url("f"), "2", &bytes);
}

#[test]
fn a_password_comes_from_the_url_or_from_netrc_and_is_never_shown() {
    let Some(server) = Proftpd::start() else { return };
    let bytes = content(1 << 20, 10);
    server.file("f", &bytes);
    let url = server.url("f");
    let with_login = url.replace("ftp://", "ftp://ann:secret%20word@");
    let run = get().args(["--json", "-o", "f", &with_login]).env("LONGHAUL_LOG", "debug");
    let ended = run.run().ok();
    same(run.path("f"), &bytes);
    assert!(!format!("{ended:?}").contains("secret"), "{ended:?}");
    let run = get().args(["-o", "f", &url]);
    fs::write(run.path(".netrc"), "machine 127.0.0.1 login ann password \"secret word\"\n").unwrap();
    run.run().ok();
    same(run.path("f"), &bytes);
    let wrong = url.replace("ftp://", "ftp://ann:wrong%20secret@");
    let ended = get().args(["-o", "f", &wrong]).run().fails(77, &["login"]);
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
}
