//! `~/.config/longhaul/config.toml` and `longhaul config`.

use std::fs;

use crate::support::{File, Get, Server, content, get, longhaul};

/// Writes the config file of a run.
fn configure(run: &Get, text: &str) {
    fs::create_dir_all(run.path(".config/longhaul")).unwrap();
    fs::write(run.path(".config/longhaul/config.toml"), text).unwrap();
}

#[test]
fn options_of_the_file_hold_where_the_command_line_has_none() {
    let server = Server::of(File::new(content(1000, 100)));
    let run = get().args([&server.url("/f")]);
    configure(&run, "user-agent = 'top'\nheader = ['X-One: 1', 'X-Two: 2']\n[get]\nuser-agent = 'table'\n");
    run.run().ok();
    let run = run.again(["-A", "line", "-o", "g", &server.url("/f")]);
    run.run().ok();
    let run = run.again(["--no-config", "-o", "h", &server.url("/f")]);
    run.run().ok();
    let asks = server.requests();
    let agents: Vec<_> = asks.iter().map(|request| request.field("user-agent").unwrap()).collect();
    assert_eq!(agents[..2], ["table", "line"]);
    assert!(agents[2].starts_with("longhaul/"), "{agents:?}");
    assert_eq!((asks[1].field("x-one"), asks[1].field("x-two")), (Some("1"), Some("2")));
    assert_eq!(asks[2].field("x-one"), None);
}

#[test]
fn variable_disables_the_file() {
    let server = Server::of(File::new(content(1000, 105)));
    let run = get().args([&server.url("/f")]);
    configure(&run, "user-agent = 'home'\n");
    let run = run.env("LONGHAUL_NO_CONFIG", "1");
    run.run().ok();
    run.again(["-o", "g", &server.url("/f")]).env("LONGHAUL_NO_CONFIG", "").run().ok();
    let asks = server.requests();
    assert!(asks[0].field("user-agent").unwrap().starts_with("longhaul/"), "{asks:?}");
    assert_eq!(asks[1].field("user-agent"), Some("home"));
}

#[test]
fn file_of_xdg_config_home_is_the_one_that_counts() {
    let server = Server::of(File::new(content(1000, 101)));
    let run = get().args([&server.url("/f")]);
    configure(&run, "user-agent = 'home'\n");
    fs::create_dir_all(run.path("xdg/longhaul")).unwrap();
    fs::write(run.path("xdg/longhaul/config.toml"), "user-agent = 'xdg'\n").unwrap();
    let xdg = run.path("xdg").to_str().unwrap().to_owned();
    run.env("XDG_CONFIG_HOME", xdg).run().ok();
    assert_eq!(server.requests()[0].field("user-agent"), Some("xdg"));
}

#[test]
fn unknown_option_is_reported_with_file_and_line() {
    let server = Server::of(File::new(content(1000, 102)));
    for (text, words) in [
        ("retries = 3\nretires = 4\n", &["config.toml, line 2", "retires"][..]),
        ("[get]\n\nretries = 'often'\n", &["config.toml, line 3", "often"]),
        ("[[get]]\n", &["config.toml, line 1"]),
        ("retries = \n", &["config.toml, line 1"]),
    ] {
        let run = get().args([&server.url("/f")]);
        configure(&run, text);
        run.run().fails(78, words);
    }
    let run = get().args([&server.url("/f")]);
    fs::create_dir_all(run.path(".config/longhaul/config.toml")).unwrap();
    run.run().fails(78, &["config.toml", "--no-config"]);
    let run = get().args([&server.url("/f")]);
    fs::create_dir_all(run.path(".config/longhaul")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", run.path(".config/longhaul/config.toml")).unwrap();
    run.run().fails(78, &["config.toml", "no regular file"]);
    assert!(server.requests().is_empty());
}

#[test]
fn command_config_shows_options_and_their_sources() {
    let run = longhaul("config");
    configure(&run, "streams = 4\n[get]\nquiet = true\nresolve = ['h:80:::1']\n");
    let path = run.path(".config/longhaul/config.toml");
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
    let again = longhaul("config");
    configure(&again, &ended.stdout);
    let shown = again.run().ok().stdout;
    let values = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split(" # ").next().unwrap().trim_end().to_owned()).skip(1).collect()
    };
    assert_eq!(values(&shown), values(&ended.stdout));
}

#[test]
fn command_config_shows_no_password() {
    let run = longhaul("config");
    configure(
        &run,
        "[get]\nuser = 'joe:s3cret'\nheader = ['Authorization: s3cret', 'X-Key:s3cret']\ncookie = 'sid=s3cret'\n",
    );
    let shown = run.run().ok().stdout;
    assert!(!shown.contains("s3cret"), "{shown}");
    for line in ["# user = \"joe:...\"", "# cookie = \"sid=...\"", "Authorization:..."] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}
