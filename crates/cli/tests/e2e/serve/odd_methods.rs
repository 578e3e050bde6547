//! Methods of WebDAV and of proxies that `serve` does not support.

use std::fs;

use crate::serve::uploads::{Place, ask};
use crate::serve::{Serve, serve};

#[test]
fn methods_of_others_are_refused_and_change_nothing() {
    let place = Place::new();
    fs::write(place.dir.path().join("f"), "content").unwrap();
    let servers = [(serve(place.dir.path(), &[]), "HEAD"), (place.command(&[]), "PUT")];
    for (command, allowed) in servers {
        let server = Serve::start(command);
        for request in [
            "LOCK /f",
            "UNLOCK /f",
            "PROPPATCH /f",
            "PROPFIND /",
            "COPY /f",
            "MOVE /f",
            "TRACE /f",
            "CONNECT example.org:443",
            "POST /f",
            "get /f",
            "B\u{e9}LOCK /f",
        ] {
            let lines = "Destination: /g\r\nLock-Token: <urn:x>\r\nDepth: infinity\r\nContent-Length: 0\r\n";
            let (status, reply) = ask(server.address, request, lines, b"");
            assert!(matches!(status, 400 | 405), "{request}: {reply}");
            assert!(
                status == 400 || reply.contains("\r\nAllow: GET") && reply.contains(allowed),
                "{request}: {reply}"
            );
            assert!(!reply.contains("Destination"), "{request}: {reply}");
        }
        let mut names: Vec<_> =
            fs::read_dir(place.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["f"]);
        assert_eq!(fs::read(place.dir.path().join("f")).unwrap(), b"content");
    }
}
