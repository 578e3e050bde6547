//! HTTPS: trust, and bodies within TLS.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::failure::FailureKind;
use longhaul_core::retry::Retry;
use longhaul_engine::source::http::{Client, ClientCertificate, ClientConfig, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, Stream};
use tempfile::TempDir;

use crate::support::{Script, by_authority, client, open, open_error, quick, read_all};

/// Creates a server's TLS settings, and the file of its certificate, made as `openssl req -x509`
/// does: a CA certificate.
pub(crate) fn server_config(dir: &TempDir) -> (Arc<ServerConfig>, PathBuf) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let made = params.self_signed(&key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.der().clone()], key).unwrap();
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, made.pem()).unwrap();
    (Arc::new(config), ca)
}

/// Creates a client that trusts the certificate in the file `ca`.
pub(crate) fn trusting(ca: &Path) -> Client {
    Client::new(ClientConfig { tls: by_authority(ca), ..quick() }).unwrap()
}

/// A TLS server that answers every request with `answer` and closes, with or without TLS's closing
/// message.
fn server(config: &Arc<ServerConfig>, answer: &'static str, close_notify: bool) -> Script {
    Script::encrypted(Arc::clone(config), move |session, peer| {
        let mut stream = Stream::new(session, &mut peer.stream);
        if stream.read(&mut [0; 4096]).is_ok() {
            let _ = stream.write_all(answer.as_bytes());
        }
        if close_notify {
            session.send_close_notify();
        }
        let _ = session.write_tls(&mut peer.stream);
    })
}

#[test]
fn body_without_a_length_requires_close_notify() {
    let dir = TempDir::new().unwrap();
    let (config, ca) = server_config(&dir);
    for (head, close_notify, complete) in [
        ("HTTP/1.1 200 OK\r\n\r\nbody", true, true),
        ("HTTP/1.1 200 OK\r\n\r\nbody", false, false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", false, true),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", false, true),
    ] {
        let server = server(&config, head, close_notify);
        let mut opened = open(&trusting(&ca), &server.tls_url("localhost")).unwrap();
        match read_all(&mut opened.connection, 64) {
            Ok(body) => assert!(complete && body == b"body", "{head}"),
            Err(error) => {
                assert!(!complete && error.to_string().contains("without TLS's closing message"), "{error}");
            }
        }
    }
}

#[test]
fn server_that_ends_the_handshake_without_tls_is_explained() {
    let broken = Script::new(|_, peer| {
        // Unread bytes turn the close into a reset.
        let _ = peer.stream.read(&mut [0; 16]);
    });
    let plain = Script::new(|_, peer| {
        let _ = peer.stream.read(&mut [0; 4096]);
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = peer.stream.read_to_end(&mut Vec::new());
    });
    for (server, class, part) in [
        (broken, (FailureKind::Temporary, Retry::Backoff), ""),
        (plain, (FailureKind::Protocol, Retry::Never), "try http://"),
    ] {
        let error = open_error(&client(), &server.tls_url("localhost"));
        assert_eq!((error.kind(), error.retry()), class, "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.is_broken_connection(), part.is_empty(), "{error}");
    }
}

#[test]
fn unusable_certificate_files_are_refused() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let key = KeyPair::generate().unwrap();
    let made = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let own = write("own.pem", &format!("{}{}", made.pem(), key.serialize_pem()));
    let (none, missing) = (write("none.pem", "nothing"), dir.path().join("missing"));
    let authority = |path: &Path| ClientConfig { tls: by_authority(path), ..quick() };
    let certificate = |cert: &Path, key: &Path| {
        let certificate = ClientCertificate { cert: cert.to_owned(), key: key.to_owned() };
        ClientConfig { tls: TlsConfig { certificate: Some(certificate), ..TlsConfig::default() }, ..quick() }
    };
    for (config, part) in [
        (authority(&none), "none.pem"),
        (authority(&missing), "missing"),
        (certificate(&none, &own), "--cert"),
        (certificate(&own, &none), "--cert"),
        (certificate(&missing, &own), "--cert"),
        (certificate(&own, &write("encrypted.key", ENCRYPTED)), "openssl pkey"),
    ] {
        let error = Client::new(config).err().unwrap();
        assert_eq!(error.kind(), FailureKind::NotFound, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

/// The beginning of what `openssl ec -aes128` writes.
const ENCRYPTED: &str = "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,F46AAF76751AC9EF72F939DC5595C64F

MIHs
-----END EC PRIVATE KEY-----
";
