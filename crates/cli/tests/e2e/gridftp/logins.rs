//! The origin that receives logins: that of the first URL, and no other of a list or a metalink.

use std::fs;

use crate::support::{Scripted, content, get};

/// Returns the user names sent to `server`.
fn users(server: &Scripted) -> Vec<String> {
    let commands = server.commands();
    commands.iter().filter_map(|(_, command)| command.strip_prefix("USER ")).map(str::to_owned).collect()
}

#[test]
fn login_is_not_for_the_servers_of_further_operands_lines_or_files() {
    for (kind, netrc) in ["operands", "list", "metalink"].into_iter().flat_map(|k| [(k, false), (k, true)]) {
        let servers = [Scripted::honest(content(100, 1)), Scripted::honest(content(100, 2))];
        let urls = [servers[0].url(), servers[1].url().replace("/dir/file", "/dir/other")];
        let run = get();
        fs::create_dir(run.path("out")).unwrap();
        fs::write(run.path("netrc"), "default login ann password geheim").unwrap();
        fs::write(run.path("list"), urls.join("\n")).unwrap();
        let file = |name: &str, url: &str| format!("<file name=\"{name}\"><url>{url}</url></file>");
        let files = file("file", &urls[0]) + &file("other", &urls[1]);
        let metalink = format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>");
        fs::write(run.path("both.meta4"), metalink).unwrap();
        let run = if netrc { run.env("NETRC", "netrc") } else { run.args(["--user", "ann:geheim"]) };
        let operands: &[&str] = match kind {
            "operands" => &[&urls[0], &urls[1]],
            "list" => &["--input", "list"],
            _ => &["both.meta4"],
        };
        run.args(["-o", "out/"]).args(operands).run().ok();
        assert_eq!(users(&servers[0]), ["ann"], "{kind}, netrc {netrc}");
        assert_eq!(users(&servers[1]), ["anonymous"], "{kind}, netrc {netrc}");
    }
}
