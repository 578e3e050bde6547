//! The server's certificate: every reason to refuse it has its own message, and no credentials are sent.
//!
//! Globus does not start with an expired certificate: the verifier's unit tests cover that.

use std::fs;
use std::path::{Path, PathBuf};

use crate::gridftp_security::credentials::get_with;
use crate::support::{Authority, GsiSite, content, openssl};

const SIZE: usize = (1 << 20) + 5;

/// Fetches with the authorities of `trusted`; the server must not learn the user's identity.
#[track_caller]
fn refused(site: &GsiSite, trusted: &Path, words: &[&str]) {
    let env = GsiSite::env_of(trusted, &site.user.certificate, &site.user.key);
    let run = get_with(env, &[], &site.url("f"));
    run.fails_unnamed(76, words);
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
    let bytes = content(SIZE, 1);
    site.globus.file("f", &bytes);
    let run = get_with(site.env(), &[], &site.url("f"));
    run.fetches(&bytes);
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
    for (name, authority, signs, policy, words) in [
        ("other", &other, all, None, &["unknown authority", "/O=Longhaul Test/CN=Test CA"][..]),
        ("equal", &equal, all, None, &["localhost"]),
        (
            "elsewhere",
            own,
            elsewhere,
            None,
            &["signing policy", "/O=Longhaul Test/CN=localhost", "elsewhere", "signing_policy"],
        ),
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
    let bytes = content(SIZE, 2);
    site.globus.file("f", &bytes);
    let publish = || openssl(dir, "ca -config ca.cnf -gencrl -out", &[list.to_str().unwrap()]);
    publish();
    let run = get_with(site.env(), &[], &site.url("f"));
    run.fetches(&bytes);

    openssl(dir, "ca -config ca.cnf -revoke localhost.pem", &[]);
    publish();
    get_with(site.env(), &[], &site.url("f")).run().fails(76, &["revoked"]);
}
