//! Checks with other clients that the servers behave as the tests assume.

use std::process::Command;

use crate::support::{FtpSite, Globus, GsiSite, Proftpd, Scripted, Vsftpd, content, same, skip};

/// Runs a client; fails if the client fails.
#[track_caller]
fn client(program: &str, words: &[&str], env: &[(&str, String)]) {
    let output = Command::new(program).args(words).envs(env.iter().map(|(k, v)| (k, v))).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Fetches a file with globus-url-copy, and compares it.
#[track_caller]
fn fetch_with_globus_url_copy(option: &[&str], url: &str, env: &[(&str, String)], expected: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("f");
    client("globus-url-copy", &[option, &[url, &format!("file://{}", to.display())]].concat(), env);
    same(&to, expected);
}

#[test]
fn globus_logs_the_streams_that_it_used() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(5 << 20, 1);
    globus.file("f", &bytes);
    fetch_with_globus_url_copy(&["-p", "3"], &globus.url("f"), &[], &bytes);
    let logged = globus.logged(1, |transfer| transfer.kind == "RETR");
    assert_eq!((logged[0].streams, logged[0].bytes, logged[0].code), (3, bytes.len() as u64, 226));
}

#[test]
fn globus_with_gsi_accepts_the_proxy_of_ann() {
    let Some(site) = GsiSite::start() else { return };
    let Some(env) = site.proxy_env() else { return };
    let bytes = content(1 << 20, 2);
    site.globus.file("f", &bytes);
    fetch_with_globus_url_copy(&["-nodcau"], &site.url("f"), &env, &bytes);
}

/// Fetches a file with curl, and compares it.
#[track_caller]
fn curl(options: &[&str], url: &str, expected: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("f");
    client("curl", &[&["-sS", "-f", "-o", to.to_str().unwrap(), url], options].concat(), &[]);
    same(&to, expected);
}

/// Fetches a file from a server without and from one with TLS.
fn serve_in_clear_and_with_tls(plain: Option<FtpSite>, tls: Option<FtpSite>, logins: &[&[&str]]) {
    let (Some(plain), Some(tls)) = (plain, tls) else { return };
    let bytes = content(1 << 20, 3);
    plain.file("f", &bytes);
    tls.file("f", &bytes);
    logins.iter().for_each(|login| curl(login, &plain.url("f"), &bytes));
    curl(&["--ssl-reqd", "--cacert", &tls.ca()], &tls.tls_url("f").replace("ftps:", "ftp:"), &bytes);
}

#[test]
fn vsftpd_and_proftpd_serve_in_clear_and_with_tls() {
    serve_in_clear_and_with_tls(Vsftpd::start(), Vsftpd::with_tls(), &[&[]]);
    serve_in_clear_and_with_tls(Proftpd::start(), Proftpd::with_tls(), &[&[], &["-u", "ann:secret word"]]);
}

#[test]
fn the_scripted_server_is_honest_where_nothing_is_said() {
    let server = Scripted::honest(content((3 << 20) + 17, 5));
    curl(&[], &server.url(), &server.file());
    if !std::path::Path::new("/usr/bin/globus-url-copy").exists() {
        return skip("globus-url-copy is not installed");
    }
    fetch_with_globus_url_copy(&["-p", "4"], &server.url(), &[], &server.file());
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("g");
    let other = content(1 << 20, 6);
    std::fs::write(&from, &other).unwrap();
    client("globus-url-copy", &["-p", "4", &format!("file://{}", from.display()), &server.url()], &[]);
    assert!(server.stored() == other, "{} bytes stored", server.stored().len());
}
