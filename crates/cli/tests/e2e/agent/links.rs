//! Links that expire.

use crate::support::{File, Home, Server, content, same, text};

#[test]
fn expired_link_waits_for_a_fresh_one_and_continues() {
    let (home, bytes) = (Home::new(), content(4_000_000, 7));
    let file = File::new(bytes.clone());
    let slow = file.clone();
    let server = Server::new(move |peer| peer.serve_at(1_000_000, &slow));
    let id = home.add(&server.url("/f?sig=old"), &["--streams", "1"]);
    home.wait_for(id, |transfer| transfer["bytes"].as_u64() > Some(200_000));
    home.queue_ok(&["pause", &id.to_string()]);
    home.wait_for_state(id, "paused");
    server.change(move |peer| {
        peer.serve_with(|request| match request.target.contains("sig=fresh") {
            true => file.answer(&request),
            false => ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(), &[]),
        });
    });
    home.queue_ok(&["resume", &id.to_string()]);
    let waiting = home.wait_for_state(id, "waiting-link");
    assert!(waiting["error"]["message"].as_str().unwrap().contains("403"), "{waiting}");
    // The fresh link has another name.
    home.queue_ok(&["refresh", &id.to_string(), &server.url("/other?sig=fresh")]);
    let done = home.done(id);
    same(home.files().join("f"), &bytes);
    assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 1, "{done}");
    let requests = server.requests();
    let mut fresh = requests.iter().filter(|request| request.target.contains("sig=fresh")).peekable();
    assert!(fresh.peek().is_some() && fresh.all(|request| request.field("range").is_some()), "{requests:?}");
}

#[test]
fn link_that_never_worked_fails_and_can_be_replaced() {
    let home = Home::new();
    let missing =
        Server::answering("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let files = format!("{}/", home.files().display());
    let output = home.queue(&["add", &missing.url("/f"), "-o", &files, "--watch"]);
    assert_eq!(output.status.code(), Some(66), "{}", text(&output));
    let id = home.list()[0]["id"].as_i64().unwrap();
    assert_eq!(home.transfer(id)["state"], "failed");
    let bytes = content(10_000, 8);
    let server = Server::of(File::new(bytes.clone()));
    home.queue_ok(&["refresh", &id.to_string(), &server.url("/f")]);
    home.done(id);
    same(home.files().join("f"), &bytes);
}
