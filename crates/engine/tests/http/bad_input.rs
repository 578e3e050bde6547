//! Malformed answers: each ends in time, with an error that names the place and the reason.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use longhaul_engine::cancel::Cancel;
use longhaul_engine::source::http::{Client, ClientConfig, ErrorKind, HttpError, Retry};

use crate::support::{Script, client, open, open_error, quick, read_all};

fn answer(answer: &str) -> HttpError {
    let server = Script::answering(answer.to_owned());
    let error = open_error(&client(), &server.url("/file"));
    let text = error.to_string();
    assert!(text.contains(&server.address.to_string()) && text.contains("/file"), "{text}");
    error
}

#[test]
fn head_of_a_megabyte_is_refused() {
    let head = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20));
    let error = answer(&head);
    assert!(matches!(error, HttpError::HeadTooLong { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Never);
    let error = answer(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(1000)));
    assert!(matches!(error, HttpError::Head { .. }), "{error}");
}

#[test]
fn slow_head_times_out() {
    let server = Script::new(|_, peer| {
        peer.read_request();
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: ".iter().chain([b'z'; 100].iter()) {
            peer.send(&[*byte]);
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let started = Instant::now();
    let error = open_error(&client(), &server.url("/"));
    assert!(matches!(error, HttpError::Timeout { .. }), "{error}");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Now));
    assert!(started.elapsed() < Duration::from_millis(2500), "{:?}", started.elapsed());
}

#[test]
fn silence_can_be_cancelled() {
    let server = Script::new(|_, peer| {
        peer.read_request();
        std::thread::sleep(Duration::from_secs(2));
    });
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let helper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        flag.cancel();
    });
    let started = Instant::now();
    let result = client().open(&server.url("/").parse().unwrap(), None, &cancel);
    assert!(matches!(result, Err(HttpError::Cancelled)));
    assert!(started.elapsed() < Duration::from_millis(600));
    helper.join().unwrap();
}

#[test]
fn garbage_is_shown_escaped() {
    let error = answer("\x1b[31mhello\0\r\n");
    let text = error.to_string();
    assert!(
        matches!(error, HttpError::NotHttp { .. }) && text.contains("\\x1b[31mhello\\x00\\r\\n"),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[test]
fn other_protocols_are_recognised() {
    for (first, hint) in [
        ("\x15\x03\x01\x00\x02\x02\x16", "https://"),
        ("\0\0\x12\x04\0\0\0\0\0\0", "HTTP/2"),
        ("PRI * HTTP/2.0\r\n", "HTTP/2"),
        ("HTTP/2.0 200 OK\r\n", "HTTP/2"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        ("220 ftp ready\r\n", "FTP"),
    ] {
        let text = answer(first).to_string();
        assert!(text.contains(hint), "{text}");
    }
}

#[test]
fn connection_closed_without_an_answer_may_be_retried() {
    for part in ["", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let error = answer(part);
        assert!(matches!(error, HttpError::ClosedBeforeHead { .. }), "{error}");
        assert_eq!(error.retry(), Retry::Now);
    }
}

#[test]
fn ambiguous_heads_are_refused() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: -5\r\n",
        "Transfer-Encoding: gzip\r\n",
        "A: b\r\n folded\r\n",
        "No colon\r\n",
        "Bad name: x\r\n",
    ] {
        let error = answer(&format!("HTTP/1.1 200 OK\r\n{fields}\r\nhello"));
        assert!(matches!(error, HttpError::Head { .. }), "{fields:?}: {error}");
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Never));
    }
}

#[test]
fn encoded_bodies_are_refused() {
    let error = answer("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
    assert!(error.to_string().contains("'gzip'"), "{error}");
    let server = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    open(&client(), &server.url("/")).unwrap();
    let request = server.requests.recv().unwrap();
    assert!(request.contains("\r\nAccept-Encoding: identity\r\n"), "{request}");
    assert!(request.contains("\r\nUser-Agent: longhaul/"), "{request}");
}

#[test]
fn interim_answers_are_skipped() {
    let server = Script::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let mut opened = open(&client(), &server.url("/")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"ok");
    assert_eq!(answer("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n").kind(), ErrorKind::Protocol);
}

#[test]
fn retry_after_of_a_busy_server_is_honoured() {
    let error = answer("HTTP/1.1 503 Busy\x07\r\nRetry-After: 17\r\nContent-Length: 0\r\n\r\n");
    assert!(matches!(error, HttpError::Head { .. }), "a control character in the reason: {error}");
    let error = answer("HTTP/1.1 503 Busy\r\nRetry-After: 17\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Unavailable, Retry::After(Duration::from_secs(17)))
    );
    assert_eq!(answer("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").retry(), Retry::Now);
    assert_eq!(answer("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n").kind(), ErrorKind::Denied);
}

#[test]
fn failed_connect_names_every_address() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = open_error(&client(), &format!("http://localhost:{}/x", closed.port()));
    let text = error.to_string();
    assert!(text.contains("localhost") && text.contains(&closed.to_string()), "{text}");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, Retry::Now));
    let error = open_error(&client(), "http://no-such-host.invalid/x");
    assert!(matches!(error.kind(), ErrorKind::NoHost | ErrorKind::Timeout), "{error}");
    assert!(error.to_string().contains("no-such-host.invalid"));
}

#[test]
fn headers_set_by_the_transfer_are_refused() {
    for header in ["Range: bytes=0-1", "accept-encoding: gzip", "Connection: close", "Proxy-Authorization: x"]
    {
        let config = ClientConfig { headers: vec![header.parse().unwrap()], ..quick() };
        let error = Client::new(config).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    }
    let config = ClientConfig {
        headers: vec!["X-Own: 1".parse().unwrap(), "user-agent: me".parse().unwrap()],
        ..quick()
    };
    let server = Script::answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    open(&Client::new(config).unwrap(), &server.url("/")).unwrap();
    let request = server.requests.recv().unwrap();
    assert!(request.contains("\r\nX-Own: 1\r\n") && !request.contains("longhaul/"), "{request}");
}

#[test]
fn ipv6_literals_work() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        println!("skipped: no IPv6 on this host");
        return;
    };
    let address = listener.local_addr().unwrap();
    let helper = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let n = stream.read(&mut request).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nv6").unwrap();
        String::from_utf8_lossy(&request[..n]).into_owned()
    });
    let mut opened = open(&client(), &format!("http://{address}/")).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"v6");
    assert!(helper.join().unwrap().contains(&format!("\r\nHost: {address}\r\n")));
}
