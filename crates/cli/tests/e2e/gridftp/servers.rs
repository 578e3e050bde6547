//! Checks with other clients that the scripted server behaves as the tests assume.

use std::fs;
use std::process::Command;

use crate::support::{Scripted, content, same, skip};

/// Runs a client; fails if the client fails.
#[track_caller]
fn client(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn scripted_server_is_honest_where_nothing_is_said() {
    let server = Scripted::honest(content((3 << 20) + 17, 5));
    let dir = tempfile::tempdir().unwrap();
    let (to, from) = (dir.path().join("f"), dir.path().join("g"));
    client("curl", &["-sS", "-f", "-o", to.to_str().unwrap(), &server.url()]);
    same(&to, &server.file());
    if !std::path::Path::new("/usr/bin/globus-url-copy").exists() {
        return skip("globus-url-copy is not installed");
    }
    fs::remove_file(&to).unwrap();
    client("globus-url-copy", &["-p", "4", &server.url(), &format!("file://{}", to.display())]);
    same(&to, &server.file());
    let other = content(1 << 20, 6);
    fs::write(&from, &other).unwrap();
    client("globus-url-copy", &["-p", "4", &format!("file://{}", from.display()), &server.url()]);
    assert!(server.stored() == other, "{} bytes stored", server.stored().len());
}
