//! The origin that receives logins: that of the first URL, and no other of a list or a metalink.

use std::fs;

use crate::support::{Scripted, content, get};

/// Returns the user names sent to `server`.
fn users(server: &Scripted) -> Vec<String> {
    let asks = server.commands();
    asks.iter().filter_map(|(_, command)| command.strip_prefix("USER ")).map(str::to_owned).collect()
}

/// Fetches files of two servers with a login; `args` builds the operands from both URLs.
#[track_caller]
fn first_server_only(args: impl Fn(&std::path::Path, [&str; 2]) -> Vec<String>) {
    for netrc in [false, true] {
        let servers = [Scripted::honest(content(100, 1)), Scripted::honest(content(100, 2))];
        let urls = [servers[0].url(), servers[1].url().replace("/dir/file", "/dir/other")];
        let run = get();
        fs::create_dir(run.path("out")).unwrap();
        let operands = args(run.dir(), [&urls[0], &urls[1]]);
        let file = run.path("netrc");
        let run = if netrc {
            fs::write(&file, "default login ann password geheim").unwrap();
            run.env("NETRC", file.to_str().unwrap())
        } else {
            run.args(["--user", "ann:geheim"])
        };
        let run = run.args(["-o", "out/"]).args(operands);
        run.run().ok();
        assert_eq!(users(&servers[0]), ["ann"], "netrc {netrc}");
        assert_eq!(users(&servers[1]), ["anonymous"], "netrc {netrc}");
    }
}

#[test]
fn a_login_is_not_for_the_servers_of_further_operands() {
    first_server_only(|_, urls| urls.map(str::to_owned).to_vec());
}

#[test]
fn a_login_is_not_for_the_servers_of_further_lines_of_a_list() {
    first_server_only(|dir, urls| {
        fs::write(dir.join("list"), urls.join("\n")).unwrap();
        vec!["--input".to_owned(), dir.join("list").to_str().unwrap().to_owned()]
    });
}

#[test]
fn a_login_is_not_for_the_servers_that_a_metalink_names_for_further_files() {
    first_server_only(|dir, urls| {
        let file = |name: &str, url: &str| format!("<file name=\"{name}\"><url>{url}</url></file>");
        let files = file("file", urls[0]) + &file("other", urls[1]);
        let text = format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>");
        fs::write(dir.join("both.meta4"), text).unwrap();
        vec![dir.join("both.meta4").to_str().unwrap().to_owned()]
    });
}
