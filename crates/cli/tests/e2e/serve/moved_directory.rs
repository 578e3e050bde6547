//! The served directory is replaced at its path, and a file of tokens names directories.

use std::fs;
use std::time::Duration;

use crate::serve::uploads::{Place, ask};
use crate::serve::{Serve, assert_refused, eventually, get, serve};

/// Longer than the interval of one second between two checks: a repeated message would appear twice.
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
    let record = place.token().with_file_name("record");
    let options = ["--writable", "--tokens", tokens.to_str().unwrap(), "--record", record.to_str().unwrap()];
    write("s3cret", "/none");
    let refused = serve(place.dir.path(), &options);
    assert_refused(refused, 78, "line 5: the directory /none of token 'a'");
    assert!(!record.exists(), "a record was begun");
    write("s3cret", "/");
    let mut server = Serve::start(serve(place.dir.path(), &options));
    write("other", "/none");
    server.wait_for_log("the old ones stay in force");
    std::thread::sleep(ONE_MORE_CHECK);
    let put = |name: &str| ask(server.address, &format!("PUT /{name}"), "Content-Length: 1\r\n", b"x").0;
    assert_eq!(put("f"), 201, "the old token is in force");
    // Once the directory exists, the new tokens apply.
    fs::create_dir(place.dir.path().join("none")).unwrap();
    eventually("the new token is in force", || put("g") == 401);
    let log = server.stop();
    assert_eq!(log.matches("the old ones stay in force").count(), 1, "{log}");
}
