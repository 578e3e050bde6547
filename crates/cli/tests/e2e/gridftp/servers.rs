//! Checks with other clients that the servers behave as the tests assume.

use std::process::Command;

use crate::support::{Globus, GsiSite, Proftpd, Scripted, Vsftpd, content, same, skip};

/// Runs a client; fails if the client fails.
#[track_caller]
fn client(program: &str, words: &[&str], env: &[(&str, String)]) {
    let output = Command::new(program).args(words).envs(env.iter().map(|(k, v)| (k, v))).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn globus_logs_the_streams_that_it_used() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(5 << 20, 1);
    globus.file("f", &bytes);
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("f");
    client("globus-url-copy", &["-p", "3", &globus.url("f"), &format!("file://{}", to.display())], &[]);
    same(&to, &bytes);
    let logged = globus.logged(1, |transfer| transfer.kind == "RETR");
    assert_eq!((logged[0].streams, logged[0].bytes, logged[0].code), (3, bytes.len() as u64, 226));
}

#[test]
fn globus_with_gsi_accepts_the_proxy_of_ann() {
    let Some(site) = GsiSite::start() else { return };
    let Some(env) = site.proxy_env() else { return };
    let bytes = content(1 << 20, 2);
    site.globus.file("f", &bytes);
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("f");
    client("globus-url-copy", &["-nodcau", &site.url("f"), &format!("file://{}", to.display())], &env);
    same(&to, &bytes);
}

/// Fetches a file with curl; the TLS options are first.
fn curl(options: &[&str], url: &str, expected: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("f");
    client("curl", &[&["-sS", "-f", "-o", to.to_str().unwrap(), url], options].concat(), &[]);
    same(&to, expected);
}

#[test]
fn vsftpd_serves_in_clear_and_with_tls() {
    let bytes = content(1 << 20, 3);
    let Some(plain) = Vsftpd::start() else { return };
    plain.file("f", &bytes);
    curl(&[], &plain.url("f"), &bytes);
    let Some(tls) = Vsftpd::with_tls() else { return };
    tls.file("f", &bytes);
    let ca = tls.ca();
    let url = tls.tls_url("f").replace("ftps:", "ftp:");
    curl(&["--ssl-reqd", "--cacert", ca.to_str().unwrap()], &url, &bytes);
}

#[test]
fn proftpd_serves_in_clear_with_a_password_and_with_tls() {
    let bytes = content(1 << 20, 4);
    let Some(plain) = Proftpd::start() else { return };
    plain.file("f", &bytes);
    curl(&[], &plain.url("f"), &bytes);
    curl(&["-u", "ann:secret word"], &plain.url("f"), &bytes);
    let Some(tls) = Proftpd::with_tls() else { return };
    tls.file("f", &bytes);
    let ca = tls.ca();
    let url = tls.tls_url("f").replace("ftps:", "ftp:");
    curl(&["--ssl-reqd", "--cacert", ca.to_str().unwrap()], &url, &bytes);
}

#[test]
fn the_scripted_server_is_honest_where_nothing_is_said() {
    let bytes = content((3 << 20) + 17, 5);
    let server = Scripted::honest(bytes.clone());
    curl(&[], &server.url(), &bytes);
    if !std::path::Path::new("/usr/bin/globus-url-copy").exists() {
        return skip("globus-url-copy is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let (to, from) = (dir.path().join("f"), dir.path().join("g"));
    client("globus-url-copy", &["-p", "4", &server.url(), &format!("file://{}", to.display())], &[]);
    same(&to, &bytes);
    let other = content(1 << 20, 6);
    std::fs::write(&from, &other).unwrap();
    client("globus-url-copy", &["-p", "4", &format!("file://{}", from.display()), &server.url()], &[]);
    assert!(server.stored() == other, "{} bytes stored", server.stored().len());
}
