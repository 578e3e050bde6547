//! Large files arrive whole, and never padded.

use std::fs::File;
use std::io::{Read, Write};

use crate::site::{Site, noise};

/// The reader has stopped when the file changes: the socket buffers hold less than the file.
#[test]
fn file_that_changes_while_it_is_sent_ends_short() {
    let site = Site::start();
    let content = noise(64 << 20);
    let rest = |mut stream: std::net::TcpStream| {
        let mut got = vec![b'H'];
        stream.read_to_end(&mut got).unwrap();
        got.split_off(got.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4)
    };
    for kept in [40 << 20, 64 << 20] {
        let path = site.write("f", &content);
        let stream = site.begin("/f");
        let mut file = File::options().write(true).open(&path).unwrap();
        if kept < content.len() {
            file.set_len(kept as u64).unwrap();
        } else {
            file.write_all(&content[1..]).unwrap();
        }
        let body = rest(stream);
        assert!(body.len() <= kept && body.len() < content.len(), "{} bytes of {kept}", body.len());
        assert!(kept == content.len() || body == content[..body.len()]);
        // The server goes on.
        assert_eq!(site.get("/f", &["Range: bytes=0-0"]).status, 206);
    }
    // A log that grows is sent as it was.
    let path = site.write("log", &content);
    let stream = site.begin("/log");
    File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    assert!(rest(stream) == content, "the whole of it");
}

#[test]
fn file_that_shrinks_ends_the_encrypted_connection_too() {
    let (site, cert) = Site::encrypted(|_| {});
    let path = site.write("f", &noise(64 << 20));
    let mut command = std::process::Command::new("curl");
    command.args(["-sS", "--cacert", &cert, &format!("https://{}/f", site.address)]);
    // Its output is not read: curl has to stop.
    let Ok(mut curl) = command.stdout(std::process::Stdio::piped()).spawn() else { return };
    let mut output = curl.stdout.take().unwrap();
    output.read_exact(&mut [0; 1]).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(30 << 20).unwrap();
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    // 18: curl received less than was announced.
    assert_eq!(curl.wait().unwrap().code(), Some(18));
}
