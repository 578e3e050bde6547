//! Several files in one command.

use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Get, Server, content, get, of_size, partial_files, same, site, slow_site};

const SMALL_DELAY: Duration = Duration::from_millis(20);

fn urls(server: &Server, size: usize, numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(|number| server.url(&format!("/{size}/{number}"))).collect()
}

#[track_caller]
fn all_arrive(run: &Get, size: usize, numbers: RangeInclusive<u64>) {
    run.run().ok();
    numbers.for_each(|number| same(run.path(number.to_string()), &of_size(size, number)));
    assert!(partial_files(run.dir()).is_empty());
}

#[test]
fn large_files_at_once_are_bounded_by_parallel() {
    const LARGE: usize = 64 << 20;
    for (options, at_once) in [(&[][..], 3), (&["--parallel", "2"], 2)] {
        let (server, load) = slow_site(Duration::ZERO, 128 << 20);
        all_arrive(
            &get().args(["--streams", "1"]).args(options).args(urls(&server, LARGE, 1..=5)),
            LARGE,
            1..=5,
        );
        assert_eq!(load.at_once(), at_once, "{options:?}");
    }
}

#[test]
fn small_files_at_once_keep_connections() {
    let (server, load) = site(SMALL_DELAY);
    all_arrive(&get().args(["--parallel", "1"]).args(urls(&server, 1000, 1..=20)), 1000, 1..=20);
    assert_eq!((load.at_once(), load.connections()), (1, 1));
    let (server, load) = site(SMALL_DELAY);
    all_arrive(&get().args(urls(&server, 1000, 1..=200)), 1000, 1..=200);
    assert!(load.at_once() > 8, "{} at once", load.at_once());
    // A few connections may open before the first ones are reusable.
    assert!(load.connections() <= 40, "{} connections", load.connections());
}

#[test]
fn missing_file_fails_alone_with_its_exit_code() {
    let (server, _) = site(SMALL_DELAY);
    let mut urls = urls(&server, 1000, 1..=6);
    urls.insert(2, server.url("/missing"));
    let run = get().args(["--json"]).args(&urls);
    let ended = run.run();
    assert_eq!(ended.status.code(), Some(66), "{ended:?}");
    (1..=6).for_each(|number| same(run.path(number.to_string()), &of_size(1000, number)));
    assert!(ended.stderr.contains("/missing"), "{ended:?}");

    let failed = urls.remove(2);
    for (event, mut urls) in [("done", urls), ("error", vec![failed])] {
        let mut found: Vec<_> = ended.events(event).iter().map(|line| line["url"].clone()).collect();
        found.sort_by_key(ToString::to_string);
        urls.sort();
        assert_eq!(found, urls, "{event}");
    }
}

#[test]
fn ctrl_c_stops_all_and_keeps_what_is_there() {
    const SIZE: usize = 8 << 20;
    let (server, load) = slow_site(Duration::ZERO, 1 << 20);
    let urls = urls(&server, SIZE, 1..=5);
    // A file that has failed before does not change the exit code.
    let run = get().args([server.url("/missing")]).args(&urls);
    let mut running = run.start();
    // A file without data is not kept.
    let has_data = |name: &String| {
        name.ends_with("journal") && fs::read_to_string(run.path(name)).is_ok_and(|text| text.contains("[["))
    };
    running.until("three have data", || {
        partial_files(run.dir()).iter().filter(|name| has_data(name)).count() == 3
    });
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!((1..=5).all(|number: u64| !run.path(number.to_string()).exists()));
    let kept = partial_files(run.dir());
    assert_eq!(kept.iter().filter(|name| name.contains("part")).count(), 3, "{kept:?}");
    load.set_rate(usize::MAX);
    all_arrive(&run.again(urls), SIZE, 1..=5);
}

#[test]
fn same_command_again_fetches_only_what_is_not_there() {
    let (server, _) = site(Duration::ZERO);
    let run =
        get().args(["--json", "-o", "g", "-i", "list"]).file("list", urls(&server, 1000, 1..=3).join("\n"));
    run.run().ok();
    fs::remove_file(run.path("g/2")).unwrap();
    let ended = run.run().ok();
    let done = ended.events("done");
    assert_eq!((done.len(), done.iter().filter(|line| line["streams"] != 0).count()), (3, 1), "{ended:?}");
    same(run.path("g/2"), &of_size(1000, 2));
    let run = run.again(["-o", "g", "-i", "list"]);
    let ended = run.run().ok();
    assert!((1..=3).all(|n| ended.stderr.contains(&format!("g/{n}: already there"))), "{ended:?}");
    fs::write(run.path("g/3"), "another file").unwrap();
    run.run().fails(73, &["g/3 exists", "remove it", "alone with -o g/3"]);
    same(run.path("g/3"), b"another file");
    let run = run.again(["-o", "g/3", &server.url("/1000/3")]);
    run.run().ok();
    same(run.path("g/3"), &of_size(1000, 3));
    // A file alone, as one of several.
    for (options, code, word) in [(&[][..], 0, "3: already there"), (&["--no-resume"], 73, "3 exists")] {
        let run = get().args([&server.url("/1000/3")]);
        run.run().ok();
        let ended = run.args(options).run();
        assert!(ended.status.code() == Some(code) && ended.stderr.contains(word), "{options:?}: {ended:?}");
    }
    // A weak tag shows it, too, and a tag of a file of unknown size; no weak date, nor a tag of
    // what may be cut off.
    for (answer, is_shown) in [
        ("ETag: W/\"1\"\r\nContent-Length: 2\r\n\r\nok", true),
        ("ETag: \"1\"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true),
        ("Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 2\r\n\r\nok", false),
        ("ETag: \"1\"\r\n\r\nok", false),
    ] {
        let server = Server::answering(format!("HTTP/1.1 200 OK\r\n{answer}"));
        let run = get().args([&server.url("/f")]);
        run.run().ok();
        let (ended, text) = (run.run(), if is_shown { "f: already there" } else { "f exists" });
        assert!(ended.stderr.contains(text) && ended.status.success() == is_shown, "{answer}: {ended:?}");
    }
}

#[test]
fn ctrl_c_while_a_file_that_is_there_is_hashed_is_an_interrupt() {
    // Takes minutes to hash, but no time to create.
    const SIZE: u64 = 64 << 30;
    let server = Server::new(|peer| {
        while peer.read_request().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\nETag: \"1\"\r\n\r\n"));
        }
    });
    let run = get().args(["-i", "list"]);
    let line = format!("{}\n checksum=sha256={}\n", server.url("/f"), "0".repeat(64));
    fs::write(run.path("list"), line).unwrap();
    fs::File::create(run.path("f")).unwrap().set_len(SIZE).unwrap();
    let running = run.start();
    while running.bytes_read().is_some_and(|read| read < 8 << 20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    running.signal(Signal::INT);
    assert_eq!(running.end().status.code(), Some(130));
}

#[test]
fn two_files_of_one_path_are_refused_before_the_start() {
    let (server, load) = site(Duration::ZERO);
    let [one, two, other] = ["/1000/1", "/1000/2", "/2000/1"].map(|target| server.url(target));
    let entry = |path: &str, url: &str| format!("<file name=\"{path}\"><url>{url}</url></file>");
    let run = get().file("real/f", "precious").file(
        "m.meta4",
        format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{}{}</metalink>",
            entry("a/f", &one),
            entry("b/f", &other)
        ),
    );
    symlink("real", run.path("link")).unwrap();
    symlink("real/new", run.path("broken")).unwrap();
    let listed = |first: &str, second: &str| format!("{one}\n{first}\n{other}\n{second}\n");
    let cases: [(&[&str], String, &str); 9] = [
        (&[&one, &two, &one], String::new(), "/1000/1 occurs twice"),
        (&["-i", "list"], format!("{one}\n dir=real\n{one}\n dir=./link\n"), "occurs twice"),
        // Of one name, which --if-newer replaces.
        (&["-N", &one, &other], String::new(), "/2000/1 would get the path of http"),
        (&["-N", "-i", "list"], listed(" dir=real", " dir=link"), "would get the path"),
        (&["-N", "-i", "list"], listed("", " out=1"), "would get the path"),
        (&["-i", "list"], listed(" out=f\n dir=link", " out=real/f"), "would get the path"),
        (&["-i", "list"], listed(" out=broken", " out=real/new"), "would get the path"),
        (&["m.meta4"], String::new(), "would get the path"),
        (&["-i", "list", "m.meta4"], listed("", " out=f"), "would get the path"),
    ];
    let mut run = run;
    for (args, list, word) in cases {
        run = run.file("list", list).again(args);
        run.run().fails(64, &[word, "out="]);
        assert_eq!(load.connections(), 0, "{args:?}");
        same(run.path("real/f"), b"precious");
    }
    let run = run.file("list", listed(" out=a", " out=a\n dir=real")).again(["-i", "list"]);
    run.run().ok();
    same(run.path("real/a"), &of_size(2000, 1));
}

/// The name that a server gives shows only in its answer.
#[test]
fn second_file_of_a_path_is_refused_where_an_answer_names_it() {
    let named = Server::new(|peer| {
        while let Some(request) = peer.read_request() {
            let name = "Content-Disposition: attachment; filename=\"one\"";
            let body = &request.target[1..];
            peer.send(format!(
                "HTTP/1.1 200 OK\r\n{name}\r\nETag: \"1\"\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    });
    let run = get().args(["--parallel", "1", &named.url("/first"), &named.url("/other")]);
    for _ in 0..2 {
        run.run().fails(73, &["one", "another file of this command"]);
        same(run.path("one"), b"first");
    }
}

#[test]
fn limit_holds_for_all_files_together() {
    let (server, _) = site(Duration::ZERO);
    let run = get().args(["--limit", "16Mbit"]).args(urls(&server, 1 << 19, 1..=6));
    let ended = run.run().ok();
    // 3 MiB at 2 MB/s.
    assert!(ended.time > Duration::from_secs_f64(1.2), "{ended:?}");
}

#[test]
fn second_url_of_one_name_fails_and_replaces_nothing() {
    for (options, size, rate, runs, error) in [
        (&[][..], 1000, usize::MAX, 1, "/7"),
        (&[], 3 << 20, 2 << 20, 1, "/7"),
        // Files of equal size and entity tag, one after the other.
        (&["--parallel", "1"], 1000, usize::MAX, 2, "7: another file of this command"),
    ] {
        let [(server, _), (other, _)] = [Duration::from_millis(50); 2].map(|delay| slow_site(delay, rate));
        let other_size = if options.is_empty() { size + 1 } else { size };
        let urls = [server.url(&format!("/{size}/7")), other.url(&format!("/{other_size}/7"))];
        let run = get().args(options).args(urls);
        for _ in 0..runs {
            let ended = run.run().fails(73, &[error]);
            let there = std::fs::read(run.path("7")).unwrap();
            assert!(there == content(size, 7) || there == content(other_size, 7), "{} bytes", there.len());
            assert_eq!(partial_files(run.dir()), [""; 0]);
            let errors = ended.stderr.lines().filter(|line| line.starts_with("longhaul: ")).count();
            assert_eq!(errors, 1, "{ended:?}");
        }
    }
}

const MANY: u64 = 2000;

#[test]
fn thousands_of_urls_need_bounded_memory_threads_and_descriptors() {
    let (server, load) = site(Duration::ZERO);
    let urls = (0..MANY).map(|number| server.url(&format!("/100/{number}")));
    let run = get().through(&["sh", "-c", "echo $$ >pid; ulimit -n 1024; exec \"$0\" \"$@\""]).args(urls);
    let mut running = run.start();
    let (mut memory, mut threads, mut descriptors) = (0, 0, 0);
    while !running.has_ended() {
        let pid = fs::read_to_string(run.path("pid")).unwrap_or_default();
        let proc = Path::new("/proc").join(pid.trim_end());
        let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        memory = memory.max(value("VmHWM:"));
        threads = threads.max(value("Threads:"));
        descriptors = descriptors.max(fs::read_dir(proc.join("fd")).map_or(0, Iterator::count));
        std::thread::sleep(Duration::from_millis(20));
    }
    running.end().ok();
    (0..MANY).for_each(|number| same(run.path(number.to_string()), &of_size(100, number)));
    let used = format!("{memory} kB, {threads} threads, {descriptors} descriptors");
    assert!(memory < 200 << 10 && threads < 400 && descriptors < 500, "{used}");
    assert!(load.connections() < 200, "{} connections", load.connections());
}
