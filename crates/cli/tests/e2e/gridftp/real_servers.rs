//! `get` from real servers: Globus over several data connections, vsftpd and proftpd by ranges over
//! several logins; and `probe` of them.

use std::collections::BTreeSet;
use std::thread::scope;

use rustix::process::Signal;

use crate::support::{
    FtpSite, Globus, LoggedTransfer, Nginx, Proftpd, Vsftpd, at_once, content, get, has_committed, misses,
    probe, report, same,
};

const SIZE: usize = (24 << 20) + 4321;

/// Slow enough to be interrupted midway.
const SLOW: [&str; 2] = ["--limit", "48Mbit"];

fn is_retrieval(transfer: &LoggedTransfer) -> bool {
    matches!(transfer.kind.as_str(), "ERET" | "RETR")
}

/// Kills a transfer after its first commit, and resumes it.
fn killed_and_resumed(url: &str, streams: &str, bytes: &[u8]) {
    let run = get().args(["--streams", streams, "--app-buffer", "1MiB", "-o", "f", url]).args(SLOW);
    let ended = run.signalled(Signal::KILL, "anything was committed", || has_committed(&run));
    assert_eq!(ended.status.code(), None);
    assert!(!run.path("f").exists());
    let run = run.again(["--streams", streams, "--json", "-o", "f", url]);
    let done = run.fetches(bytes).done();
    assert!(done["resumed"].as_u64().unwrap() > 0, "{done}");
}

#[test]
fn globus_sends_over_as_many_connections_as_asked_for_states_its_digest_and_is_resumed_after_a_kill() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 1);
    globus.file("f", &bytes);
    let (right, wrong) = (blake3::hash(&bytes).to_hex().to_string(), "0".repeat(64));
    // The kernel doubles the requested buffer (socket(7)).
    for (streams, options, buffer) in [(1, &[][..], None), (4, &["--recv-buffer", "300KiB"], Some(600 << 10))]
    {
        let before = globus.transfers().len();
        let run = get().args(["--json", "--streams", &streams.to_string(), "-o", "f", &globus.url("f")]);
        let run = run.args(["--checksum", &format!("blake3:{right}")]).args(options);
        let ended = run.fetches(&bytes);

        let connected = ended.json().iter().filter(|event| event["event"] == "connected").count();
        let done = ended.done();
        assert_eq!((connected as u64, done["streams"].as_u64()), (streams, Some(streams)));
        assert_eq!(done["digest"].as_str(), Some(&*format!("blake3:{right}")));
        let logged = &globus.logged(before + 1, is_retrieval)[before..];
        let is_as_asked = |transfer: &LoggedTransfer| {
            let is_buffer = buffer.is_none_or(|buffer| transfer.buffer == buffer);
            transfer.code == 226 && u64::from(transfer.streams) == streams && is_buffer
        };
        assert!(logged.iter().all(is_as_asked), "{logged:?}");
        assert_eq!(logged.iter().map(|transfer| transfer.bytes).sum::<u64>(), SIZE as u64, "{logged:?}");
    }
    let run = get().args(["--checksum", &format!("blake3:{wrong}"), "-o", "f", &globus.url("f")]);
    run.fails_unnamed(65, &["checksum", &wrong]);
    killed_and_resumed(&globus.url("f"), "4", &bytes);
}

#[test]
fn apt_changes_the_number_of_connections_from_chunk_to_chunk() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 4);
    globus.file("f", &bytes);
    // The first chunk has Delta x window / RTT bytes: with this Delta a part of the file even if
    // the RTT is a few microseconds.
    let tuner = ["--tuner", "apt", "--apt-n0", "1", "--apt-delta", "1ms", "--recv-buffer", "16KiB"];
    get().args(["-o", "f", &globus.url("f")]).args(tuner).fetches(&bytes);
    // Its goodput is compared with that of twice as many connections. Globus may send a short chunk
    // over fewer ones.
    let log = globus.log();
    let requested = log.split("Parallelism=").skip(1).map(|rest| rest.split(',').next().unwrap());
    let requested: Vec<_> = requested.collect();
    assert!(requested.starts_with(&["1", "2"]), "{requested:?} in {log}");
}

#[test]
fn globus_and_http_mirror_share_a_file() {
    let (Some(globus), Some(site)) = (Globus::start(), Nginx::start()) else { return };
    let bytes = content(SIZE, 5);
    globus.file("f", &bytes);
    site.file("f", &bytes);
    let fetch = |url: &str, mirror: &str| {
        let run = get().args(["--json", "-o", "f", url, "--mirror", mirror, "--limit", "96Mbit"]);
        let ended = run.fetches(&bytes);

        let events = ended.json();
        let connected = events.iter().filter(|event| event["event"] == "connected");
        let peers: BTreeSet<_> = connected.map(|event| event["peer"].to_string()).collect();
        assert!(peers.len() >= 2, "{peers:?}");
    };
    scope(|threads| {
        threads.spawn(|| fetch(&globus.url("f"), &site.url("/f")));
        threads.spawn(|| fetch(&site.url("/f"), &globus.url("f")));
    });
}

#[test]
fn empty_tiny_and_missing_files_and_directories_are_told_apart() {
    let Some(globus) = Globus::start() else { return };
    for (name, bytes) in [("empty", &b""[..]), ("tiny", b"x")] {
        globus.file(name, bytes);
        get().args(["--streams", "4", "-o", "f", &globus.url(name)]).fetches(bytes);
    }
    get().args([globus.url("none")]).run().fails(66, &["No such file"]);
    get().args([globus.url("").trim_end_matches('/')]).run().fails(64, &["directory"]);
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
fn vsftpd_and_proftpd_are_fetched_by_ranges_and_resume() {
    let bytes = content(SIZE, 8);
    at_once([Vsftpd::start(), Proftpd::start()].into_iter().flatten(), |server: FtpSite| {
        server.file("f", &bytes);
        // Slow enough for every login to complete in time.
        let run = get().args(["--json", "--streams", "4", "-o", "f", &server.url("f"), "--limit", "96Mbit"]);
        let done = run.fetches(&bytes).done();
        assert!(done["streams"].as_u64().unwrap() > 1, "{done}");
        killed_and_resumed(&server.url("f"), "2", &bytes);
    });
}

#[test]
fn a_password_comes_from_the_url_or_from_netrc_and_is_never_shown() {
    let Some(server) = Proftpd::start() else { return };
    let bytes = content(1 << 20, 10);
    server.file("f", &bytes);
    let url = server.url("f");
    let with_login = url.replace("ftp://", "ftp://ann:secret%20word@");
    let run = get().args(["--json", "-o", "f", &with_login]).env("LONGHAUL_LOG", "debug");
    let ended = run.fetches(&bytes);

    assert!(!format!("{ended:?}").contains("secret"), "{ended:?}");
    let run = get()
        .args(["-o", "f", &url])
        .file(".netrc", "machine 127.0.0.1 login ann password \"secret word\"\n");
    run.fetches(&bytes);
    let wrong = url.replace("ftp://", "ftp://ann:wrong%20secret@");
    let ended = get().args(["-o", "f", &wrong]).run().fails(77, &["login"]);
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
}

/// Long enough for a steady rate.
const PROBED_SIZE: usize = 64 << 20;

#[track_caller]
fn has_throughput(url: &str) {
    let report = report(&probe(&["--json", url]).ok());
    let rows = report["tcp"].as_array().unwrap();
    let streams: Vec<_> = rows.iter().map(|row| row["streams"].as_u64().unwrap()).collect();
    assert_eq!(streams, [1, 4], "{report}");
    assert!(rows.iter().all(|row| row["payload_bps"].as_u64().unwrap() > 0), "{report}");
    assert_eq!(report["server"]["size"].as_u64(), Some(PROBED_SIZE as u64), "{report}");
}

#[test]
fn throughput_of_one_and_of_several_data_connections_is_measured() {
    let bytes = content(PROBED_SIZE, 31);
    if let Some(vsftpd) = Vsftpd::start() {
        vsftpd.file("f", &bytes);
        has_throughput(&vsftpd.url("f"));
        let report = report(&probe(&["--json", &vsftpd.url("missing")]).ok());
        assert!(misses(&report, "TCP throughput: "), "{report}");
    }
    if let Some(globus) = Globus::start() {
        globus.file("f", &bytes);
        has_throughput(&globus.url("f"));
    }
}
