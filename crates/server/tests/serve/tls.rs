//! HTTPS: clients that do not speak it, or slowly.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use longhaul_server::TlsFiles;
use rcgen::CertifiedKey;

use crate::site::{Site, curl, wait_for};
use crate::uploads::Talk;

/// Writes a self-signed certificate for 127.0.0.1 and its key.
pub(crate) fn files(dir: &Path) -> TlsFiles {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let files =
        TlsFiles { cert: dir.join("cert.pem"), key: dir.join("key.pem"), client_ca: None, client_crl: None };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    files
}

#[test]
fn plain_http_and_slow_handshakes_are_dropped() {
    let (site, _) = Site::encrypted(|config| config.limits.timeouts.head = Duration::from_millis(300));
    let reply = site.raw("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(!reply.contains("HTTP/1.1"), "{reply}");
    let mut stream = site.connect();
    // The first bytes of a ClientHello.
    stream.write_all(&[22, 3, 1, 2, 0]).unwrap();
    let ended = stream.read(&mut [0; 10]);
    let is_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(is_reset), "{ended:?}");
}

#[test]
fn handshakes_of_one_client_leave_places_to_others() {
    let (site, cert) = Site::encrypted(|config| config.limits.timeouts.head = Duration::from_secs(60));
    site.write("f", b"x");
    let silent: Vec<_> = (0..140).map(|_| Talk::to(&site)).collect();
    // Half of all places are one client's; its other connections are closed.
    wait_for(|| silent.iter().filter(|talk| talk.is_answered()).count() == 12);
    let url = format!("https://{}/f", site.address);
    for (from, body) in [("127.0.0.1", ""), ("127.0.0.2", "x")] {
        let Some((_, found)) = curl(&["--interface", from, "--cacert", &cert, &url]) else { return };
        assert_eq!(found, body.as_bytes(), "{from}");
    }
}
