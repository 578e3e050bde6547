//! `serve --require-token` and `--allow-cleartext`: `get` and curl against it.

use std::fs;
use std::process::Command;

use crate::uploads::Place;
use crate::{BIN, Serve};

#[test]
fn get_shows_the_token_that_reading_needs() {
    let place = Place::new();
    fs::write(place.dir.path().join("f"), "content").unwrap();
    let server = Serve::start(place.command(&["--require-token"]));
    let beside = tempfile::tempdir().unwrap();
    let get = |args: &[&str]| {
        let mut command = Command::new(BIN);
        command.current_dir(beside.path()).args(["get", "-q", "--retries", "0", "--no-memory", "-o", "out"]);
        command.args(args).arg(format!("http://{}/f", server.address));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = get(&[]);
    assert!(code == Some(77) && text.contains("401"), "{code:?} {text}");
    let token = place.token();
    let (code, text) = get(&["--token", token.to_str().unwrap()]);
    assert_eq!(
        (code, fs::read(beside.path().join("out")).unwrap().as_slice()),
        (Some(0), b"content".as_slice()),
        "{text}"
    );
}

#[test]
fn token_in_clear_from_another_host_is_refused_unless_allowed() {
    let place = Place::new();
    let flags: &[&str] = if rustix::process::geteuid().is_root() { &["-n"] } else { &["-rn"] };
    let run = |option: &str| {
        let script = format!(
            "ip link set lo up && ip addr add 10.9.9.1/32 dev lo || exit 9
             {BIN} serve {} --listen 0.0.0.0:8080 --writable --token {} {option} 2>log & pid=$!
             for n in $(seq 100); do grep -q ^serving log 2>/dev/null && break; sleep 0.05; done
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
                assert!(
                    std::env::var_os("CI").is_none(),
                    "a network namespace and curl are needed: {other:?}"
                );
                println!("skipped: no network namespace may be made here");
                None
            }
        }
    };
    let Some(refused) = run("") else { return };
    assert!(refused.contains("--allow-cleartext") && refused.contains(" 403\n"), "{refused}");
    assert!(refused.ends_with(" 201\n"), "on loopback nobody listens: {refused}");
    assert!(!place.dir.path().join("10.9.9.1").exists());
    assert_eq!(run("--allow-cleartext").unwrap(), " 201\n 204\n");
}
