//! HTTPS with a certificate that curl verifies.

use longhaul_server::{Config, ServeError, Server, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedKey, IsCa, Issuer, KeyPair};

use crate::site::{Site, curl, noise, same};

/// Writes a self-signed certificate for 127.0.0.1 and its key.
pub(crate) fn files(dir: &std::path::Path) -> TlsFiles {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let files = TlsFiles { cert: dir.join("cert.pem"), key: dir.join("key.pem"), client_ca: None };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    files
}

#[test]
fn curl_verifies_and_gets_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let tls = files(dir.path());
    let cert = tls.cert.to_str().unwrap().to_owned();
    let site = Site::with(|config| config.tls = Some(tls));
    let file = site.write("f", &noise(20_000_001));
    let (url, out) = (format!("https://{}/f", site.address), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let Some((code, _)) = curl(&["--cacert", &cert, "-o", out, &url]) else { return };
    assert!(code == 0 && same(&file, out.as_ref()));
    let (code, part) = curl(&["--cacert", &cert, "-r", "5000000-5000099", &url]).unwrap();
    assert!(code == 0 && part == std::fs::read(&file).unwrap()[5_000_000..5_000_100]);
    // Two files over one connection, then a client that does not trust the certificate.
    let (code, text) =
        curl(&["--cacert", &cert, "-o", out, &url, "-o", out, &url, "-w", "%{num_connects} "]).unwrap();
    assert_eq!((code, String::from_utf8_lossy(&text).as_ref()), (0, "1 0 "));
    assert_eq!(curl(&["-o", out, &url]).unwrap().0, 60);
}

#[test]
fn a_file_that_shrinks_ends_the_encrypted_connection_too() {
    let dir = tempfile::tempdir().unwrap();
    let tls = files(dir.path());
    let cert = tls.cert.to_str().unwrap().to_owned();
    let site = Site::with(|config| config.tls = Some(tls));
    let path = site.write("f", &noise(40 << 20));
    let (url, out) = (format!("https://{}/f", site.address), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let shrink = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(600));
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(30 << 20).unwrap();
    });
    let outcome = curl(&["--cacert", &cert, "--limit-rate", "20M", "-o", out, &url]);
    shrink.join().unwrap();
    // 18: curl got less than was promised.
    assert!(outcome.is_none_or(|(code, _)| code == 18));
}

#[test]
fn plain_http_on_the_https_port_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let tls = files(dir.path());
    let site = Site::with(|config| config.tls = Some(tls));
    let reply = site.raw("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(!reply.contains("HTTP/1.1"), "{reply}");
}

#[test]
fn bad_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let good = files(dir.path());
    let other = tempfile::tempdir().unwrap();
    let other = files(other.path());
    let empty = dir.path().join("empty");
    std::fs::write(&empty, "nothing").unwrap();
    let bind = |cert: &std::path::Path, key: &std::path::Path| {
        let mut config = Config::new(dir.path(), "127.0.0.1:0".parse().unwrap());
        config.tls = Some(TlsFiles { cert: cert.to_owned(), key: key.to_owned(), client_ca: None });
        Server::bind(config).err().map(|error| (error.to_string(), error))
    };
    assert!(bind(&good.cert, &good.key).is_none());
    let missing = dir.path().join("missing");
    for (cert, key, named) in [
        (&missing, &good.key, "missing"),
        (&empty, &good.key, "empty"),
        (&good.cert, &empty, "empty"),
        (&good.cert, &missing, "missing"),
    ] {
        let (text, error) = bind(cert, key).unwrap();
        assert!(matches!(error, ServeError::TlsFile { .. }) && text.contains(named), "{text}");
    }
    let _keep = other.cert.parent();
}

#[test]
fn renewed_certificate_is_shown_and_transfers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let tls = files(dir.path());
    let old = dir.path().join("old.pem");
    std::fs::copy(&tls.cert, &old).unwrap();
    let site = Site::with(|config| config.tls = Some(tls.clone()));
    let file = site.write("f", &noise(8 << 20));
    let (url, out) = (format!("https://{}/f", site.address), dir.path().join("out"));
    let (url_of_slow, out_of_slow, trusted) = (url.clone(), out.clone(), old.clone());
    // Takes some seconds, in which the certificate is renewed.
    let slow = std::thread::spawn(move || {
        let (out, trusted) = (out_of_slow.to_str().unwrap(), trusted.to_str().unwrap());
        curl(&["--cacert", trusted, "--limit-rate", "2M", "-o", out, &url_of_slow])
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    let renewed = files(dir.path());
    let (cert, deadline) = (renewed.cert.to_str().unwrap(), std::time::Instant::now() + LONGEST_RENEWAL);
    loop {
        match curl(&["--cacert", cert, "-r", "0-9", &url]) {
            None => break,
            Some((0, _)) => break,
            _ => assert!(std::time::Instant::now() < deadline, "the old certificate is still shown"),
        }
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let Some((code, _)) = slow.join().unwrap() else { return };
    assert!(code == 0 && same(&file, &out));
}

/// The files are looked at each second; a busy host gets more time.
const LONGEST_RENEWAL: std::time::Duration = std::time::Duration::from_secs(20);

/// Writes a certificate of a client and its key, signed by a new authority; returns the names of the authority's, the client's and the
/// key's file.
fn client(dir: &std::path::Path, name: &str) -> [String; 3] {
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_text = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap().pem();
    let texts = [authority_text, certificate, key.serialize_pem()];
    ["authority", "certificate", "key"].map(|kind| {
        let path = dir.join(format!("{name}-{kind}.pem"));
        let at = ["authority", "certificate", "key"].iter().position(|other| *other == kind).unwrap();
        std::fs::write(&path, &texts[at]).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let mut tls = files(dir.path());
    let [authority, certificate, key] = client(dir.path(), "ann");
    let [_, other_certificate, other_key] = client(dir.path(), "eve");
    tls.client_ca = Some(authority.into());
    let cert = tls.cert.to_str().unwrap().to_owned();
    let site = Site::with(|config| config.tls = Some(tls));
    site.write("f", b"content");
    let url = format!("https://{}/f", site.address);
    let get = |args: &[&str]| curl(&[&["--cacert", cert.as_str(), url.as_str()], args].concat());
    let Some((code, text)) = get(&["--cert", &certificate, "--key", &key]) else { return };
    assert_eq!((code, text.as_slice()), (0, b"content".as_slice()));
    assert_ne!(get(&[]).unwrap(), (0, b"content".to_vec()));
    let stranger = get(&["--cert", &other_certificate, "--key", &other_key]).unwrap();
    assert!(stranger.0 != 0 && stranger.1.is_empty(), "{stranger:?}");
    assert!(get(&[]).unwrap().0 != 0);
}

#[test]
fn file_without_a_client_authority_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut tls = files(dir.path());
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "nothing").unwrap();
    tls.client_ca = Some(empty);
    let mut config = Config::new(dir.path(), "127.0.0.1:0".parse().unwrap());
    config.tls = Some(tls);
    let error = Server::bind(config).err().unwrap().to_string();
    assert!(error.contains("empty.pem") && error.contains("client authority"), "{error}");
}
