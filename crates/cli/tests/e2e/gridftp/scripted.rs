//! What a scripted server is asked: addresses of data connections, digests, logins.

use std::net::{Ipv6Addr, TcpListener};

use crate::support::{Globus, Nginx, Scripted, content, get, skip};

#[test]
fn data_connections_are_opened_over_ipv6_from_both_ends() {
    if let Err(error) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        return skip(&format!("no IPv6: {error}"));
    }
    let plain = [("FEAT", "211-Extensions\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n EPSV\r\n211 End")];
    for (size, is_plain, command, least) in
        [((3 << 20) + 7, false, "EPRT |2|::1|", 1), ((20 << 20) + 7, true, "EPSV", 2)]
    {
        let server = Scripted::at(Ipv6Addr::LOCALHOST.into(), content(size, 1), move |session, command| {
            is_plain && session.answer(command, &plain)
        });
        get().args(["--streams", "3", "-o", "f", &server.url()]).fetches(&server.file());
        let commands = server.commands();
        assert_eq!(server.count("PORT") + server.count("PASV"), 0, "{commands:?}");
        let count = commands.iter().filter(|(_, sent)| sent.starts_with(command)).count();
        assert!(count >= least, "{commands:?}");
    }
}

const SIZE: usize = (3 << 20) + 99;

/// Features of a server that computes MD5.
const FEATURES: &str =
    "211-Extensions\r\n PARALLEL\r\n ERET\r\n SIZE\r\n MDTM\r\n CKSM MD5:10;\r\n EPRT\r\n211 End";

#[test]
fn digest_that_globus_computes_is_compared() {
    let Some(globus) = Globus::start() else { return };
    let bytes = content(SIZE, 12);
    globus.file("f", &bytes);
    let run = get().args(["--json", "--checksum", "server", "-o", "f", &globus.url("f")]);
    let digest = run.fetches(&bytes).done()["digest"].as_str().unwrap().to_owned();
    assert!(digest.starts_with("sha256:"), "{digest}");

    get().args(["--checksum", &digest, "-o", "f", &globus.url("f")]).run().ok();
}

#[test]
fn digest_that_is_wrong_or_not_stated_fails() {
    let zero = "0".repeat(32);
    for (reply, code, word) in [
        (&*format!("213 {zero}"), 65, &*format!("md5:{zero}")),
        ("213 12", 65, "states no"),
        ("500 failed", 76, "refused CKSM"),
    ] {
        let server = Scripted::answering(content(SIZE, 11), [("FEAT", FEATURES), ("CKSM", reply)]);
        get().args(["--checksum", "server", "-o", "f", &server.url()]).fails_unnamed(code, &[word]);
        let commands = server.commands();
        assert!(commands.iter().any(|(_, sent)| sent == "CKSM MD5 0 -1 /dir/file"), "{commands:?}");
    }
}

#[test]
fn server_without_digests_fails_before_the_transfer() {
    let server = Scripted::honest(content(SIZE, 13));
    let run = get().args(["--checksum", "server", "-o", "f", &server.url()]);
    run.run().fails(65, &["states no digest", "--checksum ALG:HEX"]);
    assert_eq!(server.count("ERET"), 0, "{:?}", server.commands());
    assert!(!run.path("f").exists());
    let Some(site) = Nginx::start() else { return };
    site.file("f", &content(SIZE, 14));
    let run = get().args(["--checksum", "server", "-o", "f", &site.url("/f")]);
    run.run().fails(65, &["states no digest"]);
}

fn users(server: &Scripted) -> Vec<String> {
    let commands = server.commands();
    commands.iter().filter_map(|(_, command)| command.strip_prefix("USER ")).map(str::to_owned).collect()
}

#[test]
fn login_is_not_for_the_servers_of_further_operands_lines_or_files() {
    for (kind, netrc) in ["operands", "list", "metalink"].into_iter().flat_map(|k| [(k, false), (k, true)]) {
        let servers = [Scripted::honest(content(100, 1)), Scripted::honest(content(100, 2))];
        let urls = [servers[0].url(), servers[1].url().replace("/dir/file", "/dir/other")];
        let file = |name: &str, url: &str| format!("<file name=\"{name}\"><url>{url}</url></file>");
        let files = file("file", &urls[0]) + &file("other", &urls[1]);
        let metalink = format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>");
        let run = get().file("netrc", "default login ann password geheim");
        let run = run.file("list", urls.join("\n")).file("both.meta4", metalink);
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
