//! Tokens, privileges and the directory of `serve` as a process, with curl as client.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::serve::long_path::LongPath;
use crate::serve::uploads::{Place, ask};
use crate::serve::{BIN, Serve, assert_refused, get, lines, serve, site, wait_until};
use crate::support::{needs_root, skip};

#[test]
fn reading_needs_a_token_and_the_hosts_name_where_that_is_required() {
    let place = Place::new();
    fs::write(place.dir.path().join("f"), "content").unwrap();
    let server = Serve::start(place.command(&["--require-token", "--host", "h", "--no-digests"]));
    assert!(get(server.address, "/f").starts_with("HTTP/1.1 421 "), "it names no host");
    let answer = ask(server.address, "GET /f", "", b"").1;
    assert!(answer.ends_with("content") && !answer.contains("Link: "), "{answer}");
    // Only where a token is needed are two too many.
    assert_eq!(ask(server.address, "GET /f", "Authorization: Bearer s3cret\r\n", b"").0, 400);
}

#[test]
fn token_in_clear_from_another_host_is_refused_unless_allowed() {
    let place = Place::new();
    let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-n"] } else { &["-rn"] };
    let run = |option: &str| {
        let script = format!(
            "ip link set lo up && ip addr add 10.9.9.1/32 dev lo || exit 9
             rm -f log; {BIN} serve {} --listen 0.0.0.0:8080 --writable --token {} {option} 2>log & pid=$!
             for n in $(seq 800); do grep -q ^serving log 2>/dev/null && break; sleep 0.05; done
             for host in 10.9.9.1 127.0.0.1; do
                 curl -s --noproxy '*' -T log -H 'Authorization: Bearer s3cret' http://$host:8080/$host -w ' %{{http_code}}\\n'
             done; kill $pid; wait $pid",
            place.dir.path().display(),
            place.token().display()
        );
        let output = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", &script])
            .current_dir(place.token().parent().unwrap())
            .output();
        match output {
            Ok(output) if output.status.success() => {
                Some(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            other => {
                skip(&format!("a network namespace and curl are needed: {other:?}"));
                None
            }
        }
    };
    let Some(refused) = run("") else { return };
    assert!(refused.contains("--allow-cleartext") && refused.contains(" 403\n"), "{refused}");
    assert!(refused.ends_with(" 201\n"), "only loopback has a listener: {refused}");
    assert!(!place.dir.path().join("10.9.9.1").exists());
    assert_eq!(run("--allow-cleartext").unwrap(), " 201\n 204\n");
}

/// Returns /proc/PID/task/TID/status of every thread that does not end meanwhile.
fn statuses(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok()).collect()
}

fn capabilities(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// Replaces a file of tokens atomically, like an editor, owned by the directory's owner.
fn replace_tokens(tokens: &Path, token: &str) {
    let text = format!("[[token]]\nname = \"a\"\ntoken = \"{token}\"\nrights = [\"write\"]\n");
    let fresh = tokens.with_extension("fresh");
    let owner = fs::metadata(tokens.parent().unwrap()).unwrap();
    fs::write(&fresh, text).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&fresh, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::rename(fresh, tokens).unwrap();
}

/// Uploads with changed tokens; then stops the server, whose log and record must show the upload.
/// Returns the status of each thread before the end.
fn upload_with_changed_tokens(place: &Place, args: &[&str]) -> Vec<String> {
    let tokens = place.token().with_file_name("tokens");
    replace_tokens(&tokens, "first");
    let record = tokens.with_extension("jsonl");
    let mut command = serve(place.dir.path(), args);
    command.arg("--writable").arg("--tokens").arg(&tokens).arg("--record").arg(&record);
    let server = Serve::start(command);
    replace_tokens(&tokens, "s3cret");
    wait_until("the changed tokens are read", || {
        // 429 after too many wrong tokens.
        ask(server.address, "PUT /f", "Content-Length: 1\r\n", b"x").0 == 201
    });
    assert_eq!(fs::read(place.dir.path().join("f")).unwrap(), b"x");
    // The upload has started further threads.
    let statuses = statuses(server.child.id());
    assert!(statuses.len() > 4, "{statuses:?}");
    let log = server.stop();
    let uploaded = log.lines().find(|line| line.contains("status=201")).unwrap();
    assert!(uploaded.contains("token=\"a\""), "{uploaded}");
    let events = lines(&record);
    assert!(events.len() > 2, "{events:?}");
    statuses
}

#[test]
fn every_thread_gives_up_privileges_and_changed_tokens_are_still_read() {
    for status in upload_with_changed_tokens(&Place::new(), &[]) {
        // DAC_OVERRIDE, DAC_READ_SEARCH and FOWNER.
        for name in ["CapPrm:", "CapEff:", "CapInh:"] {
            assert_eq!(capabilities(&status, name) & !0b1110, 0, "{status}");
        }
    }
}

/// In a network namespace, setting the default congestion control may need CAP_NET_ADMIN. A restart
/// of slow start sets another one, and then the default again.
#[test]
fn cap_net_admin_is_kept_if_setting_the_default_congestion_control_needs_it() {
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    if allowed.split_whitespace().any(|name| name == "cubic") {
        return println!("every process may set cubic, the emulated hosts' default");
    }
    let Some(path) = LongPath::with_file(1) else { return };
    let server = path.serve(&[]);
    // DAC_READ_SEARCH, and NET_ADMIN.
    let kept = |status: &String| capabilities(status, "CapEff:") & !0b100 == 1 << 12;
    let statuses = statuses(server.process.id());
    assert!(statuses.iter().any(kept), "{statuses:?}");
    server.stop();
}

/// Asserts that no program which the thread runs gets privileges.
fn assert_no_new_privileges(status: &str) {
    assert!(status.contains("\nNoNewPrivs:\t1\n"), "{status}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(capabilities(status, "CapBnd:"), 0, "{status}");
    }
}

#[test]
fn every_thread_of_a_server_that_is_only_read_may_at_most_read_more() {
    let dir = site("content");
    let server = Serve::start(serve(dir.path(), &[]));
    assert!(get(server.address, "/f").ends_with("content"));
    // DAC_READ_SEARCH. The log's thread drops its capabilities once it has written what is there.
    let may_at_most_read_more = |status: &String| {
        ["CapPrm:", "CapEff:", "CapInh:"].iter().all(|name| capabilities(status, name) & !0b100 == 0)
    };
    wait_until("every thread has dropped its capabilities", || {
        let statuses = statuses(server.child.id());
        let has_log = statuses.iter().any(|status| status.starts_with("Name:\tstderr\n"));
        has_log && statuses.iter().all(may_at_most_read_more)
    });
    statuses(server.child.id()).iter().for_each(|status| assert_no_new_privileges(status));
}

#[test]
fn files_that_another_user_cannot_read_again_are_named_at_the_start() {
    let Some(()) = needs_root("becoming another user") else { return };
    let place = Place::new();
    let beside = place.token().parent().unwrap().join("tls");
    fs::create_dir(&beside).unwrap();
    for directory in [place.dir.path(), beside.parent().unwrap(), &beside] {
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (cert, key, tokens) = (beside.join("cert"), beside.join("key"), beside.join("tokens"));
    fs::write(&cert, certified.cert.pem()).unwrap();
    fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
    fs::write(&tokens, "[[token]]\nname = \"a\"\ntoken = \"s3cret\"\nrights = [\"write\"]\n").unwrap();
    for secret in [&key, &tokens] {
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let [cert, key, tokens] = [&cert, &key, &tokens].map(|path| path.to_str().unwrap());
    let args = ["--run-as", "nobody", "--writable", "--tls-cert", cert, "--tls-key", key, "--tokens", tokens];
    let server = Serve::start(serve(place.dir.path(), &args));
    let log = server.stop();
    let warned = |path: &str| log.lines().any(|line| line.contains(path) && line.contains("read again"));
    assert!(warned(key) && warned(tokens) && !warned(cert), "{log}");
}

#[test]
fn renewed_certificate_is_read_by_a_confined_server_and_transfers_go_on() {
    let dir = site(vec![7; 48 << 20]);
    let beside = tempfile::tempdir().unwrap();
    let at = |name: &str| beside.path().join(name).to_str().unwrap().to_owned();
    // Each renewal replaces the files by a rename, and has its own authority.
    let renew = |trusted: &str| {
        let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(at(trusted), certified.cert.pem()).unwrap();
        fs::write(at("fresh.key"), certified.signing_key.serialize_pem()).unwrap();
        fs::copy(at(trusted), at("fresh.pem")).unwrap();
        fs::rename(at("fresh.key"), at("server.key")).unwrap();
        fs::rename(at("fresh.pem"), at("server.pem")).unwrap();
    };
    renew("first");
    let args = ["--tls-cert", &at("server.pem"), "--tls-key", &at("server.key")];
    let server = Serve::start(serve(dir.path(), &args));
    let curl = |trusted: &str, range: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--noproxy", "*", "-r", range, "--cacert", &at(trusted)]);
        curl.arg(format!("https://{}/f", server.address)).stdout(Stdio::piped());
        curl
    };
    // Its output is read only after the renewal.
    let mut running = curl("first", "0-").spawn().unwrap();
    let mut output = running.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    renew("second");
    wait_until("the renewed certificate is read", || {
        curl("second", "0-6").output().unwrap().stdout == [7; 7]
    });
    let rest = std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    assert!(rest == (48 << 20) - 1 && running.wait().unwrap().success(), "{rest} bytes");
}

#[test]
fn server_becomes_another_user() {
    let Some(()) = needs_root("becoming another user") else { return };
    let place = Place::new();
    fs::write(place.dir.path().join("f"), "content").unwrap();
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Serve::start(serve(place.dir.path(), &["--run-as", "nobody"]));
    assert!(get(server.address, "/f").ends_with("content"));
    drop(server);
    fs::remove_file(place.dir.path().join("f")).unwrap();
    let token_place = place.token().parent().unwrap().to_owned();
    for directory in [place.dir.path(), &token_place] {
        chown(directory, Some(65534), Some(65534)).unwrap();
    }
    let statuses = upload_with_changed_tokens(&place, &["--run-as", "nobody"]);
    assert_eq!(fs::metadata(place.dir.path().join("f")).unwrap().uid(), 65534);
    for status in statuses {
        assert_eq!(capabilities(&status, "CapPrm:"), 0, "{status}");
        assert_no_new_privileges(&status);
        assert!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
    }
    for numbers in ["65534", "65534:65534"] {
        fs::remove_file(place.dir.path().join("f")).unwrap();
        let statuses = upload_with_changed_tokens(&place, &["--run-as", numbers]);
        assert!(statuses.iter().all(|status| status.contains("\nGid:\t65534\t65534")), "{statuses:?}");
    }
    for unknown in ["no-such-user-here", "2000000001"] {
        assert_refused(serve(place.dir.path(), &["--run-as", unknown]), 77, "UID:GID");
    }
}

#[test]
fn pipe_without_a_writer_in_place_of_a_file_does_not_hold_up_the_start() {
    let place = Place::new();
    let pipe = place.token().with_file_name("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let pipe = pipe.to_str().unwrap();
    for (args, code) in [
        (vec!["--writable", "--token", pipe], 66),
        (vec!["--writable", "--tokens", pipe], 78),
        (vec!["--tls-cert", pipe, "--tls-key", pipe], 78),
    ] {
        let plain = serve(place.dir.path(), &args);
        let mut command = Command::new("timeout");
        command.args(["40", BIN]).args(plain.get_args());
        assert_refused(command, code, "pipe");
    }
}

#[test]
fn token_file_that_may_not_be_read_is_named() {
    let place = Place::new();
    let token = place.token();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o000)).unwrap();
    let token = token.to_str().unwrap();
    for (option, code, named) in
        [("--token", 77, token), ("--token", 77, "ermission denied"), ("--tokens", 78, token)]
    {
        let mut command = serve(place.dir.path(), &["--writable", option, token]);
        // Root can read any file unless these capabilities are dropped.
        if rustix::process::geteuid().is_root() {
            let plain = std::mem::replace(&mut command, Command::new("setpriv"));
            command.args(["--bounding-set", "-dac_override,-dac_read_search"]);
            command.args(["--inh-caps", "-dac_override,-dac_read_search", BIN]).args(plain.get_args());
        }
        assert_refused(command, code, named);
    }
}

/// Longer than the interval of one second between two checks: a repeated message would appear
/// twice.
const ONE_MORE_CHECK: Duration = Duration::from_millis(1_300);

#[test]
fn replaced_directory_is_logged_once_and_the_first_is_served_on() {
    let above = tempfile::tempdir().unwrap();
    let (path, away) = (above.path().join("site"), above.path().join("away"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("f"), "first").unwrap();
    let mut server = Serve::start(serve(&path, &[]));
    let messages = ["another directory has this path", "was moved or removed", "has its path again"];
    fs::rename(&path, &away).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("f"), "second").unwrap();
    server.wait_for_log(messages[0]);
    std::thread::sleep(ONE_MORE_CHECK);
    assert!(get(server.address, "/f").ends_with("first"));
    fs::remove_dir_all(&path).unwrap();
    server.wait_for_log(messages[1]);
    fs::rename(&away, &path).unwrap();
    server.wait_for_log(messages[2]);
    let log = server.stop();
    for messages in messages {
        assert_eq!(log.matches(messages).count(), 1, "{messages}: {log}");
    }
}
