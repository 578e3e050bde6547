//! A certificate authority for one test.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A server's certificate for localhost, and its key; the authority's certificate is in `ca.pem`
/// beside them.
pub(crate) struct Certificates {
    pub(crate) server: PathBuf,
    pub(crate) key: PathBuf,
}

pub(crate) fn certificates(dir: &Path) -> Certificates {
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // OpenSSL treats a certificate as self-signed if issuer and subject are equal.
    ca.distinguished_name.push(DnType::CommonName, "authority of a test");
    let ca_key = KeyPair::generate().unwrap();
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let server = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    write("ca.pem", &ca_pem);
    Certificates {
        server: write("server.pem", &server.pem()),
        key: write("server.key", &key.serialize_pem()),
    }
}

/// Creates the TLS configuration of a server with [`certificates`] in `dir`.
pub(crate) fn server_config(dir: &Path) -> Arc<ServerConfig> {
    let files = certificates(dir);
    let chain = CertificateDer::pem_file_iter(&files.server).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}
