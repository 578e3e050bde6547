//! `longhaul browser host`: valid and malformed messages on stdin; and `install` and `uninstall`.
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::lab::wait_until;
use crate::support::{File, Home, Server, content, same};

const CHROMIUM: &str = "chrome-extension://ogkijnhkdbnpemdfgbbbkmpdmajjjgmh/";

fn frame(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_ne_bytes(), body].concat()
}

/// Runs the host with this input to its end.
fn host(home: &Home, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = home.command();
    command.args(["browser", "host"]).args(arguments).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The host may already have closed its input.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A host that waits for requests.
struct Host {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Host {
    fn start(mut command: Command) -> Self {
        command.args(["browser", "host", CHROMIUM]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    fn send(&mut self, request: &[u8]) {
        self.stdin.write_all(&frame(request)).unwrap();
    }

    fn read(&mut self) -> Value {
        let mut prefix = [0; 4];
        self.stdout.read_exact(&mut prefix).unwrap();
        let mut body = vec![0; u32::from_ne_bytes(prefix) as usize];
        self.stdout.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Reads until each of `wanted` holds for a message; returns the last message of each.
    fn until<const N: usize>(&mut self, wanted: [fn(&Value) -> bool; N]) -> [Value; N] {
        let mut found = [const { Value::Null }; N];
        while found.contains(&Value::Null) {
            let message = self.read();
            let kept = found.iter_mut().zip(wanted).filter(|(_, is)| is(&message));
            kept.for_each(|(place, _)| *place = message.clone());
        }
        found
    }

    fn end(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Sends requests and returns as many replies; then closes the host's input.
fn ask(home: &Home, requests: &[&[u8]]) -> Vec<Value> {
    let mut host = Host::start(home.command());
    requests.iter().for_each(|request| host.send(request));
    let replies = requests.iter().map(|_| host.read()).collect();
    host.end();
    replies
}

#[test]
fn malformed_requests_are_answered_and_the_next_one_is_served() {
    let home = Home::without_agent();
    let bad: [&[u8]; 5] = [b"", b"{", b"[1,2]", br#"{"id":7,"type":"format-disk"}"#, b"\xff\xfe"];
    let mut requests = bad.to_vec();
    requests.push(br#"{"id":9,"type":"hello"}"#);
    let replies = ask(&home, &requests);
    for reply in &replies[..bad.len()] {
        assert!(reply["ok"] == false && reply["error"]["code"] == "bad-request", "{reply}");
    }
    assert_eq!(replies[3]["id"], 7);
    assert_eq!(replies[5]["result"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn another_extension_and_a_message_over_one_mebibyte_or_cut_short_are_not_answered() {
    let home = Home::without_agent();
    let (too_long, hello) = (frame(&vec![b' '; (1 << 20) + 1]), frame(br#"{"id":1,"type":"hello"}"#));
    for (arguments, input, why) in [
        (&["chrome-extension://aaaabbbbccccddddeeeeffffgggghhhh/"][..], &hello[..], "another extension"),
        (&["/m.json", "x@y"], &hello, "another extension"),
        (&[], &hello, "another extension"),
        (&[CHROMIUM], &too_long, "at most 1048576"),
        (&[CHROMIUM], &hello[..10], "cut short"),
        (&[CHROMIUM], &hello[..2], "cut short"),
    ] {
        let output = host(&home, arguments, input);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(why), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn only_downloads_into_the_directory_are_accepted() {
    let home = Home::without_agent();
    let link = "http://127.0.0.1:9/f";
    for request in [
        json!({"urls": [link], "name": "../../.bashrc"}),
        json!({"urls": [link], "output": "/tmp/f"}),
        json!({"kind": "put", "paths": ["/etc/passwd"], "urls": [link]}),
        json!({"urls": ["file:///etc/passwd"]}),
    ] {
        let add = json!({"id": 1, "type": "add", "request": request}).to_string();
        let offer = json!({"id": 2, "type": "offer", "seconds": 9, "request": request}).to_string();
        let replies = ask(&home, &[add.as_bytes(), offer.as_bytes()]);
        assert!(replies.iter().all(|reply| reply["ok"] == false), "{request}: {replies:?}");
    }
}

#[test]
fn agent_killed_during_an_offer_is_started_again_and_takes_the_download_once() {
    let (home, server, bytes) = (Home::new(), Server::silent(), content(3_000_000, 1));
    home.set(&json!({ "directory": home.files() }));
    let mut host = Host::start(home.command());
    let offer = |id: u8, seconds: u8| {
        let request = json!({ "urls": [server.url("/f")], "name": "f.bin", "size": bytes.len() });
        json!({ "id": id, "type": "offer", "seconds": seconds, "request": request }).to_string()
    };
    host.send(br#"{"id":1,"type":"watch"}"#);
    host.until([|message| message["event"] == "connected"]);
    // A connection for an expected offer has no request.
    host.send(json!({"id": 4, "type": "connect", "url": server.url("/")}).to_string().as_bytes());
    let [connected] = host.until([|message| message["id"] == 4]);
    assert!(connected["ok"] == true && server.requests().is_empty(), "{connected}");
    host.send(offer(2, 1).as_bytes());
    let [late] = host.until([|message| message["id"] == 2]);
    assert_eq!(late["error"]["code"], "refused", "{late}");
    wait_until("the agent drops it", || home.list().is_empty());
    let before = server.requests().len();
    host.send(offer(3, 250).as_bytes());
    wait_until("the next is requested", || server.requests().len() > before);
    server.mend(File { fields: "Accept-Ranges: bytes\r\n".to_owned(), ..File::new(bytes.clone()) });
    home.kill(Signal::KILL);
    let [reply, ..] = host.until([
        |message| message["id"] == 3,
        |message| message["event"] == "lost",
        |message| message["event"] == "connected",
    ]);
    home.done(reply["result"]["id"].as_i64().unwrap_or_else(|| panic!("{reply}")));
    assert_eq!(home.list().len(), 1);
    same(home.files().join("f.bin"), &bytes);
    home.agent(&["stop"]);
    let [stopped] = host.until([|message| message["event"] == "lost"]);
    assert_eq!(stopped["message"], "the agent has been stopped");
    host.end();
}

#[test]
fn install_can_be_undone() {
    let home = Home::without_agent();
    let profile = home.path("profile");
    fs::create_dir_all(home.path(".mozilla")).unwrap();
    let run_in = |verb: &str, place: &[&str]| {
        let output = home.command().args(["browser", verb]).args(place).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let run = |verb: &str| run_in(verb, &["--user-data-dir", profile.to_str().unwrap()]);
    assert_eq!(run("check").0, Some(1), "nothing is installed");
    assert_eq!((run("install").0, profile.exists()), (Some(66), false), "a mistyped directory is not made");
    fs::create_dir(&profile).unwrap();
    assert_eq!(run("install").0, Some(0));
    let (code, shown) = run("check");
    assert_eq!(code, Some(0), "{shown}");
    let manifests = [
        home.path(".mozilla/native-messaging-hosts/longhaul.json"),
        profile.join("NativeMessagingHosts/longhaul.json"),
    ];
    assert!(manifests.iter().all(|path| path.is_file()), "{shown}");
    assert_eq!(run_in("uninstall", &[]).0, Some(0), "the list has the directory");
    assert!(!manifests.iter().any(|path| path.exists()));
    assert_eq!(fs::read_dir(home.path(".local/share/longhaul")).unwrap().count(), 0);
}
