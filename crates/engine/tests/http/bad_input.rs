//! Malformed answers, and fields that the user may not set.

use longhaul_engine::source::http::{Client, ClientConfig, ErrorKind, Retry};

use crate::support::{Script, client, open_error, quick};

#[test]
fn answers_without_a_complete_head_are_explained() {
    let (protocol, closed) = ((ErrorKind::Protocol, Retry::Never), (ErrorKind::Io, Retry::Now));
    for (answer, class, part) in [
        ("\x1b[31mhello\0\r\n", protocol, "\\x1b[31mhello\\x00\\r\\n"),
        ("\x15\x03\x01\x00\x02\x02\x16", protocol, "https://"),
        ("\0\0\x12\x04\0\0\0\0\0\0", protocol, "HTTP/2"),
        ("PRI * HTTP/2.0\r\n", protocol, "HTTP/2"),
        ("HTTP/2.0 200 OK\r\n", protocol, "HTTP/2"),
        ("SSH-2.0-OpenSSH_9.2\r\n", protocol, "SSH"),
        ("220 ftp ready\r\n", protocol, "FTP"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", protocol, "101"),
        (
            "HTTP/1.1 503 Busy\x1b\r\nContent-Length: 0\r\n\r\n",
            (ErrorKind::Unavailable, Retry::Now),
            "503 Busy",
        ),
        ("", closed, "closed"),
        ("HTTP/1.1 200", closed, "closed"),
        ("HTTP/1.1 200 OK\r\nContent-Le", closed, "closed"),
    ] {
        let server = Script::answering(answer);
        let error = open_error(&client(), &server.url("/file"));
        let text = error.to_string();
        assert_eq!((error.kind(), error.retry()), class, "{text}");
        for part in [&server.address.to_string(), "/file", part] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}

#[test]
fn headers_set_by_the_transfer_are_refused() {
    for header in ["Range: bytes=0-1", "expect: 100-continue", "Proxy-Authorization: x"] {
        let config = ClientConfig { headers: vec![header.parse().unwrap()], ..quick() };
        let error = Client::new(config).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
}
