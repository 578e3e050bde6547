//! The user's credentials, the server's certificate, and `--encrypt`: what is used, and what is
//! refused before anything is sent. Globus does not start with an expired certificate: the
//! verifier's unit tests cover that.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Authority, Get, Globus, GsiSite, content, get, longhaul, openssl, with_credentials};

const SIZE: usize = (3 << 20) + 77;

/// Creates a `get` of `url` with only these credentials in its environment.
pub(crate) fn get_with<const N: usize>(env: [(&'static str, String); N], args: &[&str], url: &str) -> Get {
    with_credentials(get(), env).args(args).args(["-o", "f", url])
}

#[test]
fn proxy_and_user_certificate_fetch_a_file() {
    let Some(site) = GsiSite::start() else { return };
    let Some(proxy) = site.proxy_env() else { return };
    let bytes = content(SIZE, 1);
    site.globus.file("f", &bytes);
    for run in
        [get_with(site.env(), &[], &site.url("f")), get_with(proxy, &["--streams", "3"], &site.url("f"))]
    {
        run.fetches(&bytes);
    }
    site.globus.logged(1, |transfer| transfer.streams == 3 && transfer.code == 226);
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
    run.fetches(&bytes);
}

#[test]
fn credentials_of_no_use_are_refused_before_connecting() {
    let Some(site) = GsiSite::start() else { return };
    let refused = |certificate: &Path, key: &Path, words: &[&str]| {
        let env = GsiSite::env_of(&site.trusted, certificate, key);
        get_with(env, &[], &site.url("f")).run().fails(77, words);
    };
    let user = &site.user;
    let old = site.authority.issue_with("old", "/O=Longhaul Test/CN=Ann User", "", "-1");
    refused(&old.certificate, &old.key, &["old.pem", "expired", "certificate authority"]);
    refused(&user.certificate, &old.key, &["old.key", "not that of the certificate"]);
    refused(Path::new("/nonexistent"), &user.key, &["/nonexistent"]);
    let encrypted = user.key.with_extension("encrypted");
    let keys = [user.key.to_str().unwrap(), "-out", encrypted.to_str().unwrap()];
    openssl(Path::new("/"), "pkey -aes256 -passout pass:secret -in", &keys);
    fs::set_permissions(&encrypted, Permissions::from_mode(0o600)).unwrap();
    refused(&user.certificate, &encrypted, &["encrypted", "grid-proxy-init"]);
    fs::set_permissions(&user.key, Permissions::from_mode(0o644)).unwrap();
    refused(&user.certificate, &user.key, &["other users", "chmod 600"]);
    let [trusted, ..] = site.env();
    get_with([trusted], &[], &site.url("f")).run().fails(77, &["no credentials", "grid-proxy-init"]);
    assert!(!site.globus.log().contains("New connection"), "{}", site.globus.log());
}

#[test]
fn unknown_user_is_refused_by_the_server() {
    let Some(site) = GsiSite::start() else { return };
    site.globus.file("f", b"secret");
    let bob = site.authority.issue("Bob User", "");
    let env = GsiSite::env_of(&site.trusted, &bob.certificate, &bob.key);
    get_with(env, &["--retries", "1"], &site.url("f")).fails_unnamed(77, &["530"]);
}

#[test]
fn unencrypted_protocols_are_refused() {
    let mirrored = ["--mirror", "http://localhost:1/f", "https://localhost:1/f"];
    for (command, operands, words) in [
        ("get", &["ftp://localhost:1/f"][..], ["ftp://localhost:1/f", "ftps://"]),
        ("get", &["http://localhost:1/f"], ["http://localhost:1/f", "https://"]),
        ("get", &mirrored, ["http://localhost:1/f", ""]),
        ("put", &["f", "ftp://localhost:1/f"], ["ftp://localhost:1/f", "ftps://"]),
        ("put", &["f", "http://localhost:1/f"], ["http://localhost:1/f", "ftps://"]),
    ] {
        let run = longhaul(command).args(["--encrypt"]).args(operands).file("f", "x");
        run.run().fails(64, &words);
    }
}

#[test]
fn server_without_gsi_is_not_taken_for_one_that_has_it() {
    let (Some(globus), Some(site)) = (Globus::start(), GsiSite::start()) else { return };
    globus.file("f", b"hello");
    let url = globus.url("f").replace("ftp:", "gsiftp:").replace("127.0.0.1", "localhost");
    let run = get_with(site.env(), &["--encrypt"], &url);
    let ended = run.run();
    assert!(!ended.status.success(), "{ended:?}");
    assert!(!run.path("f").exists());
    assert!(globus.transfers().is_empty());
}

const SMALL: usize = (1 << 20) + 5;

/// Fetches with the authorities of `trusted`; the server must not learn the user's identity.
#[track_caller]
fn refused(site: &GsiSite, trusted: &Path, words: &[&str]) {
    let env = GsiSite::env_of(trusted, &site.user.certificate, &site.user.key);
    get_with(env, &[], &site.url("f")).fails_unnamed(76, words);
    assert!(!site.globus.log().contains("Ann User"), "{}", site.globus.log());
}

#[test]
fn certificate_of_another_host_is_refused() {
    let Some(site) = GsiSite::with(|authority| authority.issue("other.example", "DNS:other.example")) else {
        return;
    };
    refused(&site, &site.trusted, &["localhost", "other.example", "impostor"]);
}

#[test]
fn common_name_counts_where_there_is_no_other() {
    let by_name = |authority: &Authority| {
        authority.issue_with("host", "/O=Longhaul Test/CN=host\\/localhost", "", "20")
    };
    let Some(site) = GsiSite::with(by_name) else { return };
    let bytes = content(SMALL, 1);
    site.globus.file("f", &bytes);
    get_with(site.env(), &[], &site.url("f")).fetches(&bytes);
}

/// Returns the policy file of the only authority in `trusted`.
fn policy_in(trusted: &Path) -> PathBuf {
    let mut files = fs::read_dir(trusted).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|kind| kind == "signing_policy")).unwrap()
}

#[test]
fn only_authorities_that_are_trusted_count_and_only_for_what_they_may_sign() {
    let Some(site) = GsiSite::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let own = &site.authority;
    // Another authority with an equal name is not trusted.
    let [other, equal] =
        ["Other CA", "Test CA"].map(|name| Authority::new(dir.path(), name, "other authority"));
    let (all, elsewhere) = ("/O=Longhaul Test/*", "/O=Elsewhere/*");
    let forbidden = ["signing policy", "/O=Longhaul Test/CN=localhost", "elsewhere", "signing_policy"];
    for (name, authority, signs, policy, words) in [
        ("other", &other, all, None, &["unknown authority", "/O=Longhaul Test/CN=Test CA"][..]),
        ("equal", &equal, all, None, &["localhost"]),
        ("elsewhere", own, elsewhere, None, &forbidden),
        ("missing", own, all, Some(None), &["no signing policy", "does not exist"]),
        ("broken", own, all, Some(Some("neg_rights globus CA:sign\n")), &["no signing policy", "line 1"]),
    ] {
        let trusted = dir.path().join(name);
        authority.trust_in(&trusted, signs);
        match policy {
            Some(Some(text)) => fs::write(policy_in(&trusted), text).unwrap(),
            Some(None) => fs::remove_file(policy_in(&trusted)).unwrap(),
            None => {}
        }
        refused(&site, &trusted, words);
    }
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let env = GsiSite::env_of(&empty, &site.user.certificate, &site.user.key);
    get_with(env, &[], &site.url("f")).run().fails(64, &["HASH.0", "X509_CERT_DIR"]);
}

#[test]
fn revoked_certificate_is_refused() {
    let Some(site) = GsiSite::start() else { return };
    let authority = site.authority.certificate();
    let dir = authority.parent().unwrap();
    fs::write(dir.join("index.txt"), "").unwrap();
    fs::write(dir.join("number"), "01\n").unwrap();
    let config = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ndefault_md=sha256\ndefault_crl_days=1\n\
                  certificate=ca.pem\nprivate_key=ca.key\ncrlnumber=number\n";
    fs::write(dir.join("ca.cnf"), config).unwrap();
    let list = policy_in(&site.trusted).with_extension("r0");
    let bytes = content(SMALL, 2);
    site.globus.file("f", &bytes);
    let publish = || openssl(dir, "ca -config ca.cnf -gencrl -out", &[list.to_str().unwrap()]);
    publish();
    let run = get_with(site.env(), &[], &site.url("f"));
    run.fetches(&bytes);

    openssl(dir, "ca -config ca.cnf -revoke localhost.pem", &[]);
    publish();
    get_with(site.env(), &[], &site.url("f")).run().fails(76, &["revoked"]);
}
