//! `--cookie` and `--load-cookies`: each server receives only its own cookies, after redirects too.

use crate::support::{File, Server, content, get};

/// Returns the Cookie header of a server's first request.
fn cookie(server: &Server) -> Option<String> {
    server.requests()[0].field("cookie").map(str::to_owned)
}

const FILE: &str = "# Netscape HTTP Cookie File\n\
    first.test\tFALSE\t/\tFALSE\t0\tfirst\t1\n\
    #HttpOnly_.second.test\tTRUE\t/\tFALSE\t4102444800\tsecond\t2\n\
    first.test\tFALSE\t/other\tFALSE\t0\tpath\tno\n\
    first.test\tFALSE\t/\tTRUE\t0\tsecure\tno\n\
    first.test\tFALSE\t/\tFALSE\t1000000000\texpired\tno\n";

#[test]
fn each_server_of_a_redirect_gets_its_own_cookies() {
    let last = Server::of(File::new(content(1000, 80)));
    let port = last.address.port();
    let first = Server::redirecting(&format!("http://www.second.test:{port}/f"));
    let rules = [
        format!("first.test:{}:127.0.0.1", first.address.port()),
        format!("www.second.test:{port}:127.0.0.1"),
    ];
    let url = format!("http://first.test:{}/f", first.address.port());
    let run = get().args(["--resolve", &rules[0], "--resolve", &rules[1], "--load-cookies", "jar"]);
    let ended = run.file("jar", FILE).args(["-b", "own=0", "-H", "X: y", &url]).run().ok();
    assert_eq!(cookie(&first).as_deref(), Some("own=0; first=1"));
    assert_eq!(cookie(&last).as_deref(), Some("second=2"), "{ended:?}");
    assert_eq!(last.requests()[0].field("x"), Some("y"));
}

#[test]
fn cookies_of_the_command_line_stay_with_the_first_server() {
    let last = Server::of(File::new(content(1000, 81)));
    let first = Server::redirecting(&last.url("/f"));
    get().args(["-b", "a=b", "--cookie", "c=d; e=f", "-H", "cookie: g=h", &first.url("/f")]).run().ok();
    assert_eq!((cookie(&first).as_deref(), cookie(&last)), (Some("g=h; a=b; c=d; e=f"), None));
    assert_eq!(first.requests()[0].head.to_ascii_lowercase().matches("\ncookie:").count(), 1);
    let first = Server::redirecting(&last.url("/f"));
    get().args(["-u", "ann:secret", "-H", "Cookie: a=b", &first.url("/f")]).run().ok();
    assert_eq!((cookie(&first).as_deref(), cookie(&last)), (Some("a=b"), None));
    // Neither is a login sent to others.
    let has_login =
        |server: &Server| server.requests().iter().any(|ask| ask.field("authorization").is_some());
    assert_eq!((has_login(&first), has_login(&last)), (true, false));
}

#[test]
fn cookie_without_a_value_names_a_file() {
    let server = Server::of(File::new(content(1000, 82)));
    let run = get().file("jar", "127.0.0.1\tFALSE\t/\tFALSE\t0\ta\tb\nbroken\n");
    let ended = run.args(["-b", "jar", &server.url("/f")]).run().ok();
    assert_eq!(cookie(&server).as_deref(), Some("a=b"));
    assert!(ended.stderr.contains("jar: 1 lines") && ended.stderr.contains("line 2"), "{ended:?}");
    // A file without cookies ends the command before a request.
    let run = get().file("jar", "{\"cookies\": []}\n").args(["--load-cookies", "jar", &server.url("/f")]);
    run.run().fails(64, &["jar", "Netscape"]);
    run.again(["--load-cookies", "none", &server.url("/f")]).run().fails(66, &["none"]);
    assert_eq!(server.requests().len(), 1);
}
