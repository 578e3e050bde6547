//! The user's credentials: which are used, and which are refused before anything is sent.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Get, GsiSite, content, get, same};

const SIZE: usize = (3 << 20) + 77;

/// Creates a `get` of `url` with only these credentials in its environment.
pub(crate) fn get_with<const N: usize>(env: [(&'static str, String); N], args: &[&str], url: &str) -> Get {
    // An empty variable counts as unset.
    let names = ["X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY", "X509_CERT_DIR"];
    let run = names.into_iter().fold(get(), |run, name| run.env(name, ""));
    let run = env.into_iter().fold(run, |run, (name, value)| run.env(name, value));
    run.args(args).args(["-o", "f", url])
}

#[test]
fn a_proxy_and_a_user_certificate_fetch_a_file() {
    let Some(site) = GsiSite::start() else { return };
    let bytes = content(SIZE, 1);
    site.globus.file("f", &bytes);
    let run = get_with(site.env(), &[], &site.url("f"));
    run.run().ok();
    same(run.path("f"), &bytes);
    let Some(proxy) = site.proxy_env() else { return };
    let run = get_with(proxy, &["--streams", "3"], &site.url("f"));
    run.run().ok();
    same(run.path("f"), &bytes);
    site.globus.logged(1, |transfer| transfer.streams == 3 && transfer.code == 226);
    // PROT is never sent: the data would cross the network in clear anyway.
    let log = site.globus.log();
    assert!(log.contains("DCAU N") && !log.contains("PROT P"), "{log}");
}

#[test]
fn files_of_the_home_directory_are_found() {
    let Some(site) = GsiSite::start() else { return };
    let bytes = content(SIZE, 2);
    site.globus.file("f", &bytes);
    let run = get_with([], &[], &site.url("f"));
    let home = run.path(".globus");
    fs::create_dir(&home).unwrap();
    fs::copy(&site.user.certificate, home.join("usercert.pem")).unwrap();
    fs::copy(&site.user.key, home.join("userkey.pem")).unwrap();
    site.authority.trust_in(&home.join("certificates"), "/O=Longhaul Test/*");
    run.run().ok();
    same(run.path("f"), &bytes);
}

/// Fails with `words` before a connection is made.
#[track_caller]
fn refused_at_home(site: &GsiSite, certificate: &Path, key: &Path, words: &[&str]) {
    let mut env = site.env();
    env[1].1 = certificate.to_str().unwrap().to_owned();
    env[2].1 = key.to_str().unwrap().to_owned();
    let before = site.globus.log().matches("New connection").count();
    get_with(env, &[], &site.url("f")).run().fails(77, words);
    assert_eq!(site.globus.log().matches("New connection").count(), before);
}

#[test]
fn credentials_of_no_use_are_refused_before_connecting() {
    let Some(site) = GsiSite::start() else { return };
    let user = &site.user;
    let old = site.authority.issue_with("old", "/O=Longhaul Test/CN=Ann User", "", "-1");
    refused_at_home(&site, &old.certificate, &old.key, &["old.pem", "expired", "certificate authority"]);
    refused_at_home(&site, &user.certificate, &old.key, &["old.key", "not that of the certificate"]);
    refused_at_home(&site, Path::new("/nonexistent"), &user.key, &["/nonexistent"]);
    let encrypted = user.key.with_extension("encrypted");
    let mut openssl = std::process::Command::new("openssl");
    openssl.args(["pkey", "-aes256", "-passout", "pass:secret", "-in"]).arg(&user.key);
    assert!(openssl.arg("-out").arg(&encrypted).status().unwrap().success());
    fs::set_permissions(&encrypted, Permissions::from_mode(0o600)).unwrap();
    refused_at_home(&site, &user.certificate, &encrypted, &["encrypted", "grid-proxy-init"]);
    fs::set_permissions(&user.key, Permissions::from_mode(0o644)).unwrap();
    refused_at_home(&site, &user.certificate, &user.key, &["other users", "chmod 600"]);
    let [trusted, ..] = site.env();
    get_with([trusted], &[], &site.url("f")).run().fails(77, &["no credentials", "grid-proxy-init"]);
}

#[test]
fn unknown_user_is_refused_by_the_server() {
    let Some(site) = GsiSite::start() else { return };
    site.globus.file("f", b"secret");
    let bob = site.authority.issue("Bob User", "");
    let mut env = site.env();
    env[1].1 = bob.certificate.to_str().unwrap().to_owned();
    env[2].1 = bob.key.to_str().unwrap().to_owned();
    let run = get_with(env, &["--retries", "1"], &site.url("f"));
    run.run().fails(77, &["530"]);
    assert!(!run.path("f").exists());
}
