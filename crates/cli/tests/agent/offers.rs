//! Downloads that a browser offers: taken over only where the server gives the agent the same file.

use serde_json::{Value, json};

use crate::support::{File, Home, Server, content, same};

fn offer(home: &Home, server: &Server, size: u64) -> (u16, Value) {
    home.set(&json!({ "directory": home.files() }));
    let body = json!({ "urls": [server.url("/f")], "name": "f.bin", "size": size });
    let (status, answer) = home.http("POST", "/api/v1/transfers/offer", &[], Some(&body));
    (status, serde_json::from_str(&answer).unwrap())
}

fn nothing_is_kept(home: &Home) {
    assert!(home.list().is_empty());
    assert_eq!(std::fs::read_dir(home.files()).unwrap().count(), 0);
}

#[test]
fn same_file_is_taken_over() {
    let (home, bytes) = (Home::new(), content(3_000_000, 1));
    let file = File { fields: "Accept-Ranges: bytes\r\n".to_owned(), ..File::new(bytes.clone()) };
    let (status, taken) = offer(&home, &Server::of(file), 3_000_000);
    assert_eq!(status, 200, "{taken}");
    home.wait_for_state(taken["id"].as_i64().unwrap(), "done");
    same(home.files().join("f.bin"), &bytes);
}

#[test]
fn file_of_another_size_is_refused_and_nothing_is_kept() {
    // A small one may be complete before it is looked at.
    for size in [100, 3_000_000] {
        let home = Home::new();
        let (status, refused) = offer(&home, &Server::of(File::new(content(size, 2))), 80_000_000);
        assert_eq!((status, &refused["error"]["code"]), (409, &"refused".into()), "{refused}");
        nothing_is_kept(&home);
    }
}

#[test]
fn page_in_place_of_the_file_is_refused_and_nothing_is_kept() {
    let home = Home::new();
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<title>Log in</title>";
    let (status, refused) = offer(&home, &Server::answering(page), 80_000_000);
    assert_eq!(status, 409, "{refused}");
    nothing_is_kept(&home);
}

#[test]
fn refusal_of_the_server_is_one_of_the_offer() {
    let home = Home::new();
    let gone = "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n";
    let (status, refused) = offer(&home, &Server::answering(gone), 80_000_000);
    assert_eq!(status, 409, "{refused}");
    nothing_is_kept(&home);
}
