//! `longhaul serve` as a process: what it prints, how it stops, its exit codes.

mod fuse;
mod hung_disk;
mod initial_window;
mod long_path;
mod open_files;
mod stalls;
mod tls;
mod tokens;
mod uploads;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use tempfile::TempDir;

use crate::support::lab::wait_until;
use crate::support::{longhaul, skip};

/// For what must happen, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

const BIN: &str = env!("CARGO_BIN_EXE_longhaul");

/// A server process; killed when dropped.
struct Serve {
    child: Child,
    address: SocketAddr,
    log: BufReader<std::process::ChildStderr>,
    /// The log read so far.
    logged: String,
}

impl Serve {
    /// Runs `command` and waits for the line with its address.
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut logged) = (String::new(), String::new());
        while !line.starts_with("serving ") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it served: {logged}");
            logged.push_str(&line);
        }
        let address = line.split("://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
        Self { child, address, log, logged }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until a line with these words is logged, and returns it.
    fn wait_for_log(&mut self, words: &str) -> String {
        let until = Instant::now() + DEADLINE;
        loop {
            let from = self.logged.len();
            while self.log.buffer().is_empty() {
                assert!(Instant::now() < until, "{words}: not in {}", self.logged);
                let mut readable = [PollFd::new(self.log.get_ref(), PollFlags::IN)];
                if poll(&mut readable, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap() > 0 {
                    self.log.fill_buf().unwrap();
                }
            }
            assert!(self.log.read_line(&mut self.logged).unwrap() > 0, "{words}: not in {}", self.logged);
            if self.logged[from..].contains(words) {
                return self.logged[from..].to_owned();
            }
        }
    }

    /// Waits for the end; returns the exit code and the complete log.
    fn end(mut self) -> (Option<i32>, String) {
        wait_until("the server ends", || self.child.try_wait().unwrap().is_some());
        let code = self.child.wait().unwrap().code();
        self.log.read_to_string(&mut self.logged).unwrap();
        (code, std::mem::take(&mut self.logged))
    }

    /// Lets the server finish, which it must do successfully; returns the complete log.
    fn stop(self) -> String {
        self.signal(Signal::TERM);
        let (code, log) = self.end();
        assert_eq!(code, Some(0), "{log}");
        log
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(BIN);
    command.arg("serve").arg(dir).args(["--listen", "127.0.0.1:0"]).args(args);
    command
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Asserts that a server does not start: its exit code, and a part of its messages.
#[track_caller]
fn assert_refused(mut command: Command, code: i32, named: &str) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
    assert!(text.contains(named), "{command:?}: {text}");
}

/// Creates a directory with the file `f`.
fn site(content: impl AsRef<[u8]>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), content).unwrap();
    dir
}

#[test]
fn prints_addresses_logs_requests_and_stops_on_sigterm() {
    let dir = site("content");
    let options = ["--pace", "1Gbit", "--congestion", "cubic", "--metrics=127.0.0.1:0"];
    let mut server = Serve::start(serve(dir.path(), &options));
    assert!(get(server.address, "/f").ends_with("\r\n\r\ncontent"));
    let line = server.wait_for_log("metrics at ");
    let metrics = line.strip_prefix("metrics at http://").unwrap().strip_suffix("/metrics\n").unwrap();
    assert!(get(metrics.parse().unwrap(), "/metrics").contains("\nlonghaul_connections "));
    let log = server.stop();
    for word in ["method=\"GET\"", "path=\"/f\"", "status=200", "bytes=7", "finishing"] {
        assert!(log.contains(word), "{word} in {log}");
    }
}

#[test]
fn listens_on_several_addresses_ipv6_too() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skip("this host has no IPv6");
    }
    let dir = site("content");
    let mut server = Serve::start(serve(dir.path(), &["--listen", "[::1]:0"]));
    let second = server.wait_for_log("http://[::1]:");
    let address = second.split("http://").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    // One port for both families, and two ports.
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(BIN);
    command.arg("serve").arg(dir.path());
    command.args(["--listen", &format!("0.0.0.0:{port}"), "--listen", &format!("[::]:{port}")]);
    let _server = Serve::start(command);
    let of_both = ["127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}").parse().unwrap());
    for address in [server.address, address].into_iter().chain(of_both) {
        assert!(get(address, "/").starts_with("HTTP/1.1 200"), "{address}");
    }
}

#[test]
fn startup_errors_have_their_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "no certificate").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let metrics = format!("--metrics={taken}");
    let file_text = file.to_str().unwrap();
    let missing = dir.path().join("missing");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let [cert, key] =
        [("cert", made.cert.pem()), ("key", made.signing_key.serialize_pem())].map(|(name, pem)| {
            let path = dir.path().join(name);
            std::fs::write(&path, pem).unwrap();
            path.to_str().unwrap().to_owned()
        });
    let missing_text = missing.to_str().unwrap();
    for (root, args, code, named) in [
        (missing.as_path(), vec![], 66, "missing"),
        (file.as_path(), vec![], 66, "file"),
        (dir.path(), vec!["--grace", "5", "--listen", &taken], 69, taken.as_str()),
        (dir.path(), vec!["--congestion", "nonsense"], 78, "cubic"),
        (dir.path(), vec!["--tls-cert", missing_text, "--tls-key", &key], 78, "missing"),
        (dir.path(), vec!["--tls-cert", file_text, "--tls-key", &key], 78, "certificate"),
        (dir.path(), vec!["--tls-cert", &cert, "--tls-key", file_text], 78, "file"),
        (dir.path(), vec!["--tls-cert", &cert, "--tls-key", missing_text], 78, "missing"),
        (
            dir.path(),
            vec!["--tls-cert", &cert, "--tls-key", &key, "--client-ca", file_text],
            78,
            "client authority",
        ),
        (
            dir.path(),
            vec!["--tls-cert", &cert, "--tls-key", &key, "--client-ca", &cert, "--client-crl", file_text],
            78,
            "revoked",
        ),
        (dir.path(), vec!["--tls-cert", file_text], 64, "--tls-key"),
        (dir.path(), vec!["--host", "http://h/"], 64, "without scheme"),
        (dir.path(), vec!["--pace", "10M"], 64, "write 10Mbit or 10MiB"),
        (dir.path(), vec!["--measure=1G"], 64, "write 1Gbit or 1GiB"),
        (dir.path(), vec!["--listen", "localhost:9522"], 64, "127.0.0.1:9522"),
        (dir.path(), vec!["--app-buffer", "1G"], 64, "write 1GB or 1GiB"),
        (dir.path(), vec!["--writable", "--token", "t", "--upload-quota", "5G"], 64, "write 5GB or 5GiB"),
        (dir.path(), vec!["--metrics=nonsense"], 64, "nonsense"),
        (dir.path(), vec!["--metrics", "127.0.0.1:0"], 64, "127.0.0.1:0"),
        (dir.path(), vec![&metrics], 69, "--metrics="),
        (dir.path(), vec!["--record", "/dev/null"], 73, "/dev/null"),
        (dir.path(), vec!["--record", "r", "--record-interval", "0.1ms"], 64, "1ms to 10s"),
        (dir.path(), vec!["--record-interval", "1ms"], 64, "--record"),
        (dir.path(), vec!["--initial-window=0"], 64, "off, auto, or a number of segments"),
        (dir.path(), vec!["--initial-window", "auto", "--pace", "off"], 64, "--initial-window needs a pace"),
    ] {
        assert_refused(serve(root, &args), code, named);
    }
}

/// An attempt to accept fails at once; the server pauses for 200 ms after each.
#[test]
fn running_out_of_descriptors_pauses_and_does_not_spin() {
    let dir = site("content");
    let mut command = serve(dir.path(), &[]);
    command.env("LONGHAUL_LOG", "debug");
    let mut server = Serve::start(command);
    let pid = Pid::from_child(&server.child);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(30), maximum: Some(30) }).unwrap();
    let started = Instant::now();
    let crowd: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for words in [" no connection can be accepted"].into_iter().chain(["still no connection can be"; 4]) {
        server.wait_for_log(words);
    }
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(4 * 200), "{took:?}: {}", server.logged);
    drop(crowd);
    assert!(get(server.address, "/f").ends_with("content"));
}

#[test]
fn request_that_finds_no_descriptor_for_its_file_waits_for_one() {
    let dir = site("content");
    let mut server = Serve::start(serve(dir.path(), &[]));
    let pid = Pid::from_child(&server.child);
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count() as u64;
    let before = getrlimit(Resource::Nofile);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(open + 3), ..before }).unwrap();
    let mut crowd: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    server.wait_for_log("no connection can be accepted");
    write!(crowd[0], "GET /f HTTP/1.0\r\n\r\n").unwrap();
    crowd[0].set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(crowd[0].read(&mut [0]).is_err(), "an answer without a descriptor");
    prlimit(Some(pid), Resource::Nofile, before).unwrap();
    crowd[0].set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut reply = String::new();
    crowd[0].read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("content"), "{reply}");
}

#[test]
fn unread_log_blocks_neither_serving_nor_shutdown() {
    let dir = site("content");
    for closed in [false, true] {
        let mut server = Serve::start(serve(dir.path(), &[]));
        if closed {
            server.log = BufReader::new(nothing());
        }
        // Each line contains a path of 8 kB: in total far more than a pipe holds.
        let path = format!("/{}", "a".repeat(8000));
        for _ in 0..40 {
            assert!(get(server.address, &path).starts_with("HTTP/1.1 404"));
        }
        assert!(get(server.address, "/f").ends_with("content"));
        server.stop();
    }
}

/// Creates the read end of a pipe whose writer is closed.
fn nothing() -> std::process::ChildStderr {
    let mut child = Command::new("true").stderr(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stderr.take().unwrap()
}

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn record_follows_the_server_to_its_end() {
    let (dir, records) = (site(vec![7; 8 << 20]), tempfile::tempdir().unwrap());
    let path = records.path().join("r.jsonl");
    let record = ["--record", path.to_str().unwrap(), "--record-interval", "10ms", "--pace", "80Mbit"];
    let mut server = Serve::start(serve(dir.path(), &record));
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "GET /f?token=secret HTTP/1.0\r\n\r\n").unwrap();
    let got = std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    server.wait_for_log("status=200");
    drop(stream);
    wait_until("the connection is closed", || {
        std::fs::read_to_string(&path).unwrap().contains("\"event\":\"closed\"")
    });
    server.stop();

    let lines = lines(&path);
    assert_eq!((&lines[0]["record"], &lines[0]["side"]), (&"longhaul".into(), &"serve".into()));
    assert_eq!((&lines[0]["interval"], &lines[0]["what"]), (&0.01.into(), &dir.path().to_str().into()));
    let explained = longhaul("explain").args(["--json"]).args([&path]).run().ok().json().remove(0);
    assert!(explained["advice"][0].as_str().unwrap().starts_with("limited by --pace for "), "{explained}");
    let of = |event: &str| -> Vec<&serde_json::Value> {
        lines.iter().filter(|line| line["event"] == event).collect()
    };
    assert_eq!((of("connected").len(), of("closed").len()), (1, 1));
    let replied = of("replied")[0];
    assert_eq!((&replied["status"], &replied["sent"]), (&200.into(), &(8 << 20).into()));
    assert!(!replied["target"].to_string().contains("secret"), "{replied}");
    let samples = of("sample");
    let mut streams = samples.iter().filter_map(|sample| sample["streams"].get(0));
    assert!(streams.all(|one| one["stream"] == 0 && one["tcp"]["tcpi_snd_cwnd"].is_u64()));
    // The FIN is acknowledged like a byte.
    let moved = samples.last().unwrap()["moved"].as_u64().unwrap();
    assert!((got..=got + 1).contains(&moved), "{moved} of {got}");
    let end = lines.last().unwrap();
    let cost = &end["telemetry"];
    assert_eq!((&end["event"], &cost["dropped"]), (&"end".into(), &0.into()));
    assert_eq!(cost["samples"], samples.len());
}

#[test]
fn record_is_never_served() {
    let (dir, other) = (site(""), tempfile::tempdir().unwrap());
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let link = other.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    for record in [
        dir.path().join("r.jsonl"),
        dir.path().join("f"),
        dir.path().join("sub/r"),
        dir.path().join("sub/../r"),
        link.join("r"),
        other.path().join("../").join(dir.path().file_name().unwrap()).join("r"),
    ] {
        let record = record.to_str().unwrap();
        assert_refused(serve(dir.path(), &["--record", record]), 64, "outside");
        assert_refused(serve(dir.path(), &["--record", record]), 64, record);
    }
    let mut command = serve(Path::new("."), &["--record", "r"]);
    command.current_dir(dir.path());
    assert_refused(command, 64, "outside");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "a record was begun");
    // Beside the directory, with a common name prefix.
    let (root, record) = (other.path().join("files"), other.path().join("files-r"));
    std::fs::create_dir(&root).unwrap();
    let record_option = ["--record", record.to_str().unwrap()];
    Serve::start(serve(&root, &record_option)).stop();
    let before = std::fs::read(&record).unwrap();
    assert!(lines(&record).len() > 1);
    // A server that cannot start replaces no record.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = serve(&root, &record_option);
    command.args(["--listen", &address]);
    assert_refused(command, 69, &address);
    assert!(before == std::fs::read(&record).unwrap(), "the record of before was replaced");
}

#[test]
fn file_size_limit_ends_the_record_and_not_the_server() {
    let (dir, records) = (site(vec![7; 1 << 20]), tempfile::tempdir().unwrap());
    let path = records.path().join("r.jsonl");
    // In blocks of 512 bytes.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 64; exec \"$@\"", "sh", BIN, "serve"]).arg(dir.path());
    command.args(["--listen", "127.0.0.1:0", "--pace", "16Mbit", "--record-interval", "1ms", "--record"]);
    command.arg(&path);
    let server = Serve::start(command);
    for _ in 0..2 {
        assert!(get(server.address, "/f").len() > 1 << 20);
    }
    let log = server.stop();
    assert!(log.contains("File too large"), "{log}");
    assert!(std::fs::metadata(&path).unwrap().len() <= 64 << 10);
}
