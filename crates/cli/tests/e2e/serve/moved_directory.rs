//! The served directory is replaced at its path, and a file of tokens names directories.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::serve::uploads::{Place, ask};
use crate::serve::{Serve, get, serve};

/// Two intervals of the server's check: a repeated message would appear twice.
const TWO_CHECKS: Duration = Duration::from_millis(2_500);

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
    std::thread::sleep(TWO_CHECKS);
    assert!(get(server.address, "/f").ends_with("first"));
    fs::remove_dir_all(&path).unwrap();
    server.wait_for_log(messages[1]);
    fs::rename(&away, &path).unwrap();
    server.wait_for_log(messages[2]);
    server.signal(Signal::TERM);
    let (_, log) = server.end();
    for messages in messages {
        assert_eq!(log.matches(messages).count(), 1, "{messages}: {log}");
    }
}

#[test]
fn token_of_an_unknown_directory_is_refused_by_its_line() {
    let place = Place::new();
    let tokens = place.token().with_file_name("tokens");
    let write = |token: &str, directory: &str| {
        use std::os::unix::fs::PermissionsExt;
        let text = format!(
            "# uploads\n[[token]]\nname = \"a\"\ntoken = \"{token}\"\ndirectory = \"{directory}\"\nrights = [\"write\"]\n"
        );
        fs::write(&tokens, text).unwrap();
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
    };
    let options = ["--writable", "--tokens", tokens.to_str().unwrap()];
    write("s3cret", "/none");
    let refused = serve(place.dir.path(), &options).output().unwrap();
    let messages = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(78) && messages.contains("line 5: the directory /none of token 'a'"),
        "{messages}"
    );
    write("s3cret", "/");
    let mut server = Serve::start(serve(place.dir.path(), &options));
    write("other", "/none");
    server.wait_for_log("the old ones stay in force");
    std::thread::sleep(TWO_CHECKS);
    let put = |name: &str| ask(server.address, &format!("PUT /{name}"), "Content-Length: 1\r\n", b"x").0;
    assert_eq!(put("f"), 201, "the old token is in force");
    // Once the directory exists, the new tokens apply.
    fs::create_dir(place.dir.path().join("none")).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while put("g") != 401 {
        assert!(Instant::now() < until, "the new token is not in force");
        std::thread::sleep(Duration::from_millis(100));
    }
    server.signal(Signal::TERM);
    let (_, log) = server.end();
    assert_eq!(log.matches("the old ones stay in force").count(), 1, "{log}");
}
