//! `~/.config/longhaul/config.toml` and `longhaul config`.

use std::fs;

use crate::support::{File, Get, Server, content, get, longhaul};

const CONFIG: &str = ".config/longhaul/config.toml";

/// A server, and a fetch from it with a config file.
fn configured(text: &str) -> (Server, Get) {
    let server = Server::of(File::new(content(1000, 100)));
    let run = get().file(CONFIG, text).args([&server.url("/f")]);
    (server, run)
}

#[test]
fn options_of_the_file_hold_where_the_command_line_has_none() {
    let (server, run) =
        configured("user-agent = 'top'\nheader = ['X-One: 1', 'X-Two: 2']\n[get]\nuser-agent = 'table'\n");
    run.run().ok();
    let run = run.again(["-A", "line", "-o", "g", &server.url("/f")]);
    run.run().ok();
    let run = run.again(["--no-config", "-o", "h", &server.url("/f")]);
    run.run().ok();
    let run = run.again(["-o", "i", &server.url("/f")]).env("LONGHAUL_NO_CONFIG", "1");
    run.run().ok();
    let run = run.env("LONGHAUL_NO_CONFIG", "").again(["-o", "j", &server.url("/f")]);
    run.run().ok();
    // The file of XDG_CONFIG_HOME is the one that counts.
    let run = run.file("xdg/longhaul/config.toml", "user-agent = 'xdg'\n");
    let xdg = run.path("xdg").to_str().unwrap().to_owned();
    run.env("XDG_CONFIG_HOME", xdg).again(["-o", "k", &server.url("/f")]).run().ok();
    let asks = server.requests();
    let fields = |name: &str| asks.iter().map(|ask| ask.field(name)).collect::<Vec<_>>();
    let agents = fields("user-agent");
    let expected = ["table", "line", "table", "xdg"].map(Some);
    assert_eq!([agents[0], agents[1], agents[4], agents[5]], expected);
    assert!(agents[2..4].iter().all(|agent| agent.unwrap().starts_with("longhaul/")), "{agents:?}");
    assert_eq!(fields("x-one"), [Some("1"), Some("1"), None, None, Some("1"), None]);
    assert_eq!(asks[0].field("x-two"), Some("2"));
}

/// As of the users of services: no file of the home is there, and none is missed.
#[test]
fn home_that_is_no_directory_is_none() {
    let (server, run) = configured("");
    let run = run.env("HOME", "/dev/null");
    let ended = run.run().ok();
    assert!(!ended.stderr.contains("/dev/null"), "{ended:?}");
    let private = crate::get::environment::private();
    run.again([&private.url("/g"), &server.url("/f")]).run().fails(77, &["401", "give a login"]);
}

#[test]
fn unknown_option_is_reported_with_file_and_line() {
    let (server, run) = configured("retries = 3\nretires = 4\n");
    run.run().fails(78, &["config.toml, line 2", "retires"]);
    assert!(server.requests().is_empty());
    let (_, run) = configured("");
    fs::remove_file(run.path(CONFIG)).unwrap();
    std::os::unix::fs::symlink("/dev/zero", run.path(CONFIG)).unwrap();
    run.run().fails(78, &["config.toml", "no regular file"]);
    fs::remove_file(run.path(CONFIG)).unwrap();
    fs::create_dir(run.path(CONFIG)).unwrap();
    run.run().fails(78, &["config.toml", "--no-config"]);
}

#[test]
fn command_config_shows_options_and_their_sources() {
    let run = longhaul("config").file(CONFIG, "streams = 4\n[get]\nquiet = true\nresolve = ['h:80:::1']\n");
    let path = run.path(CONFIG);
    let ended = run.run().ok();
    let line = |start: &str| ended.stdout.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    let from = |line: &str, number: usize| line.ends_with(&format!("# {}, line {number}", path.display()));
    let streams = line("streams = ");
    assert_eq!(streams.len(), 2, "get and put have it: {ended:?}");
    assert!(streams.iter().all(|line| line.contains("4") && from(line, 1)), "{ended:?}");
    let quiet = line("quiet = ");
    assert!(from(quiet[0], 3) && quiet[1].ends_with("# default"), "{ended:?}");
    assert!(line("retries = ")[0].contains("5") && line("retries = ")[0].ends_with("# default"));
    assert!(line("# ").contains(&&*format!("# {}", path.display())), "{ended:?}");
    // The output is a config file with equal settings.
    let shown = longhaul("config").file(CONFIG, &ended.stdout).run().ok().stdout;
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap().trim_end().to_owned()).skip(1).collect()
    };
    assert_eq!(values(&shown), values(&ended.stdout));
}

#[test]
fn command_config_shows_no_password() {
    let header = "header = ['Authorization: s3cret', 'X-Key:s3cret']";
    let text = format!("[get]\nuser = 'joe:s3cret'\n{header}\ncookie = 'sid=s3cret'\n");
    let shown = longhaul("config").file(CONFIG, text).run().ok().stdout;
    assert!(!shown.contains("s3cret"), "{shown}");
    for line in ["# user = \"joe:...\"", "# cookie = \"sid=...\"", "Authorization:..."] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}
