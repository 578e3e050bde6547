//! HTTPS: trust, and bodies within TLS.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::event::{JobId, JobObserver, JobTag};
use longhaul_core::pace::Pace;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::send::ReaderChoice;
use longhaul_engine::source::http::{Client, ClientCertificate, ClientConfig, ErrorKind, HttpError, Retry};
use longhaul_engine::upload::{self, PutRequest, UploadError};
use longhaul_engine::verify::Verify;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};
use tempfile::TempDir;

use crate::support::{
    Nginx, Script, body, certificates, client, content, next, open, open_error, quick, range, read_all,
};

#[test]
fn known_authority_is_trusted_and_an_unknown_one_refused() {
    let Some(nginx) = Nginx::start() else { return };
    let data = content(3_000_001);
    nginx.file("data", &data);
    let url = format!("https://localhost:{}/data", nginx.tls_port);
    let config = ClientConfig { ca_file: Some(nginx.dir.path().join("ca.pem")), ..quick() };
    let trusting = Client::new(config).unwrap();
    for url in [&url, &format!("https://127.0.0.1:{}/data", nginx.tls_port)] {
        let mut opened = open(&trusting, url).unwrap();
        assert!(opened.connection.is_tls());
        assert_eq!(read_all(&mut opened.connection, 1 << 20).unwrap(), data);
        assert_eq!(next(&mut opened.connection, Some(&range(5, 10))), (206, data[5..10].to_vec()));
    }
    assert_eq!(body(&trusting, &url.replace("/data", "/chunked/data")), data);

    let error = open_error(&client(), &url);
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Tls, Retry::Never));
    assert!(error.to_string().contains("--cacert"), "{error}");
}

#[test]
fn plain_and_tls_ports_mixed_up_are_explained() {
    let Some(nginx) = Nginx::start() else { return };
    let text = open_error(&client(), &format!("https://127.0.0.1:{}/", nginx.port)).to_string();
    assert!(text.contains("try http://"), "{text}");
    let text = open_error(&client(), &format!("http://127.0.0.1:{}/", nginx.tls_port)).to_string();
    assert!(text.contains("right port and scheme"), "{text}");
}

#[test]
fn ca_file_without_certificates_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ca.pem");
    for content in [None, Some("not a certificate")] {
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let error = Client::new(ClientConfig { ca_file: Some(path.clone()), ..quick() }).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::LocalFile);
        assert!(error.to_string().contains("ca.pem"), "{error}");
    }
}

/// Creates TLS settings with a certificate and its key.
fn settings(certificate: CertificateDer<'static>, key: &str) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    Arc::new(config.with_single_cert(vec![certificate], key).unwrap())
}

/// Creates a server's TLS settings, and the file of its authority.
pub(crate) fn server_config(dir: &TempDir) -> (Arc<ServerConfig>, PathBuf) {
    let made = certificates();
    let certificate = CertificateDer::from_pem_slice(made.server_pem.as_bytes()).unwrap();
    let config = settings(certificate, &made.key.serialize_pem());
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, made.ca_pem).unwrap();
    (config, ca)
}

/// Creates a client that trusts the authority in the file `ca`.
pub(crate) fn trusting(ca: &Path) -> Client {
    Client::new(ClientConfig { ca_file: Some(ca.to_owned()), ..quick() }).unwrap()
}

/// A TLS server that answers every request with `answer` and closes, with or without TLS's closing message.
fn server(dir: &TempDir, answer: &'static str, close_notify: bool) -> (Script, Client) {
    let (config, ca) = server_config(dir);
    let script = Script::new(move |_, peer| {
        let mut session = ServerConnection::new(config.clone()).unwrap();
        let mut stream = Stream::new(&mut session, &mut peer.stream);
        let mut request = [0; 4096];
        let _ = std::io::Read::read(&mut stream, &mut request);
        let _ = stream.write_all(answer.as_bytes());
        if close_notify {
            session.send_close_notify();
        }
        let _ = session.write_tls(&mut peer.stream);
    });
    (script, trusting(&ca))
}

#[test]
fn body_without_a_length_requires_close_notify() {
    let dir = TempDir::new().unwrap();
    for (head, close_notify, complete) in [
        ("HTTP/1.1 200 OK\r\n\r\nbody", true, true),
        ("HTTP/1.1 200 OK\r\n\r\nbody", false, false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", false, true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", false, true),
    ] {
        let (script, client) = server(&dir, head, close_notify);
        let url = format!("https://localhost:{}/", script.address.port());
        let result = read_all(&mut open(&client, &url).unwrap().connection, 64);
        match result {
            Ok(body) => assert!(complete && body == b"body", "{head}"),
            Err(HttpError::NoCloseNotify { .. }) => assert!(!complete, "{head}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn reset_in_the_handshake_is_a_broken_connection() {
    let script = Script::new(|_, peer| {
        // Unread bytes turn the close into a reset.
        let _ = std::io::Read::read(&mut peer.stream, &mut [0; 16]);
    });
    let error = open_error(&client(), &format!("https://localhost:{}/", script.address.port()));
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Io, Retry::Now), "{error}");
}

#[test]
fn redirect_does_not_give_up_encryption() {
    let dir = TempDir::new().unwrap();
    let plain = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let location = plain.url("/f");
    let answer = format!("HTTP/1.1 307 There\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
    let (script, client) = server(&dir, answer.leak(), true);
    let url = format!("https://localhost:{}/f", script.address.port());
    let refused = |error: &HttpError| matches!(error, HttpError::RedirectRefused { .. });
    assert!(refused(&open_error(&client, &url)));

    let path = dir.path().join("f");
    fs::write(&path, "abc").unwrap();
    let request = PutRequest {
        streams: longhaul_engine::job::Streams::Auto,
        path,
        url: url.parse().unwrap(),
        reader: ReaderChoice::Auto,
        verify: Some(Verify::Passing),
        pace: Pace::Off,
        congestion: None,
        limit: None,
        resume: true,
        retries: 0,
        stall: Duration::from_secs(5),
        sample: None,
        memory: None,
        client: ClientConfig { ca_file: Some(dir.path().join("ca.pem")), ..quick() },
        sessions: upload::FtpSessions::default(),
    };
    let tag = JobTag::new(JobId::new(1), "https://localhost/");
    match upload::put(&request, JobObserver::new(&tag, &()), &Cancel::new()) {
        Err(UploadError::Http(error)) => assert!(refused(&error), "{error}"),
        other => panic!("{other:?}"),
    }
    assert!(plain.requests.try_recv().is_err(), "the plain server was asked");
}

/// Creates a certificate as `openssl req -x509` does, which is a CA certificate, valid until the end of `year`.
fn self_signed_until(year: i32) -> (Arc<ServerConfig>, String) {
    let mut params =
        rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(year, 12, 31);
    let key = rcgen::KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    (settings(made.der().clone(), &key.serialize_pem()), made.pem())
}

const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Answers over TLS by `config`; returns `client`'s outcome.
fn outcome(config: &Arc<ServerConfig>, host: &str, settings: ClientConfig) -> Result<(), HttpError> {
    let config = Arc::clone(config);
    let script = Script::new(move |_, peer| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = Stream::new(&mut session, &mut peer.stream);
        if std::io::Read::read(&mut stream, &mut [0; 4096]).is_ok() {
            let _ = stream.write_all(EMPTY.as_bytes());
        }
    });
    let client = Client::new(settings).unwrap();
    open(&client, &format!("https://{host}:{}/", script.address.port())).map(|_| ())
}

#[test]
fn given_self_signed_certificate_is_trusted_until_it_expires() {
    let dir = TempDir::new().unwrap();
    let trusting = |pem: &str| {
        let ca = dir.path().join("own.pem");
        fs::write(&ca, pem).unwrap();
        ClientConfig { ca_file: Some(ca), ..quick() }
    };
    let (config, pem) = self_signed_until(4096);
    for host in ["localhost", "127.0.0.1"] {
        outcome(&config, host, trusting(&pem)).unwrap();
    }
    let (_, other) = self_signed_until(4096);
    let stranger = outcome(&config, "localhost", trusting(&other)).unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::Tls, "{stranger}");
    let text = stranger.to_string();
    assert!(
        text.contains("signed by itself") && text.contains("--cacert") && !text.contains("Other"),
        "{text}"
    );
    let (config, pem) = self_signed_until(2020);
    let expired = outcome(&config, "localhost", trusting(&pem)).unwrap_err().to_string();
    assert!(expired.contains("expired"), "{expired}");
}

#[test]
fn unusable_client_certificate_is_refused() {
    let dir = TempDir::new().unwrap();
    let made = certificates();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let own = write("own.pem", &format!("{}{}", made.server_pem, made.key.serialize_pem()));
    for (cert, key) in [
        (write("none.pem", "nothing"), own.clone()),
        (own.clone(), write("none.key", "nothing")),
        (own.clone(), write("encrypted.key", ENCRYPTED)),
        (dir.path().join("missing"), own.clone()),
    ] {
        let is_encrypted = key.ends_with("encrypted.key");
        let certificate = Some(ClientCertificate { cert, key });
        let error = Client::new(ClientConfig { certificate, ..quick() }).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::LocalFile, "{error}");
        assert!(error.to_string().contains("--cert"), "{error}");
        assert_eq!(error.to_string().contains("openssl pkey"), is_encrypted, "{error}");
    }
}

/// The beginning of what `openssl ec -aes128` writes.
const ENCRYPTED: &str = "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,F46AAF76751AC9EF72F939DC5595C64F

MIHs
-----END EC PRIVATE KEY-----
";
