//! `/metrics`: well-formed, true, out of the way.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_server::{Config, Server};

use crate::site::{Answer, Site, noise, wait_for};
use crate::uploads::{Talk, head, writable_with};

const CONTENT: usize = 24 << 20;
const COUNTERS: &str =
    "connections sent_bytes retransmits busy_seconds rwnd_limited_seconds sndbuf_limited_seconds";

/// A scrape: values by name and labels.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(address: SocketAddr) -> Self {
        let answer = ask(address, "GET", "/metrics");
        assert_eq!(answer.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        Self::read(&answer.body)
    }

    /// Reads the text format and holds it against its rules.
    fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'));
        let (mut values, mut family, mut kinds) = (BTreeMap::new(), String::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                assert!(!text.is_empty() && !text.contains('\\'), "{line}");
                family = name.to_owned();
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, family, "TYPE follows the HELP of its family");
                assert!(matches!(kind, "counter" | "gauge"), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} comes twice");
            } else {
                let (key, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = key.split_once('{').map_or((key, None), |(n, l)| (n, Some(l)));
                assert_eq!(name, family, "a value stands below its family");
                let mut letters = name.bytes();
                assert!(letters.all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
                if let Some(labels) = labels {
                    let (label, value) = labels.strip_suffix("\"}").unwrap().split_once("=\"").unwrap();
                    assert!(label.bytes().all(|b| b.is_ascii_lowercase()) && !value.contains('"'), "{line}");
                }
                let value: f64 = value.parse().unwrap();
                assert!(value.is_finite() && value >= 0.0, "{line}");
                assert!(values.insert(key.to_owned(), value).is_none(), "{line} comes twice");
            }
        }
        assert_eq!(kinds.len(), 19, "{kinds:?}");
        Self(values)
    }

    fn get(&self, key: &str) -> f64 {
        *self.0.get(key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0))
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

fn ask(metrics: SocketAddr, method: &str, target: &str) -> Answer {
    let mut talk = Talk(TcpStream::connect(metrics).unwrap());
    talk.0.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
    talk.ask(&head(method, target, &["Connection: close"]), b"")
}

fn scrape_until(site: &Site, ready: impl Fn(&Scrape) -> bool) -> Scrape {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        let scrape = scrape(site);
        if ready(&scrape) {
            return scrape;
        }
        assert!(Instant::now() < deadline, "{:?}", scrape.0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn with_metrics(config: &mut Config) {
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
}

/// A site with metrics.
pub(crate) fn watched(change: impl FnOnce(&mut Config)) -> Site {
    Site::with(|config| {
        with_metrics(config);
        change(config);
    })
}

pub(crate) fn value(site: &Site, key: &str) -> f64 {
    scrape(site).get(key)
}

fn scrape(site: &Site) -> Scrape {
    Scrape::of(site.metrics.unwrap())
}

#[test]
fn metrics_have_an_address_of_their_own_with_nothing_else() {
    let site = Site::with(with_metrics);
    site.write("f", b"content");
    let metrics = site.metrics.unwrap();
    assert_eq!((site.get("/metrics", &[]).status, site.get("/f", &[]).body.as_str()), (404, "content"));
    let refused = Answer::read(&site.raw("nonsense\r\n\r\n")).status;
    for (method, target, status) in
        [("GET", "/f", 404), ("GET", "/", 404), ("PUT", "/metrics", 405), ("HEAD", "/metrics", 200)]
    {
        assert_eq!(ask(metrics, method, target).status, status, "{method} {target}");
    }
    // Nothing that happens there counts.
    let scrape = scrape_until(&site, |now| now.get("longhaul_connections") == 0.0);
    assert_eq!(scrape.get("longhaul_connections_total"), 3.0);
    for status in [200, 404, refused] {
        assert_eq!(scrape.get(&format!("longhaul_replies_total{{code=\"{status}\"}}")), 1.0, "{status}");
    }
    let mut taken = Config::new(site.dir.path(), "127.0.0.1:0".parse().unwrap());
    taken.metrics = Some(metrics);
    let error = Server::bind(taken).err().unwrap();
    let message = error.to_string();
    assert!(
        message.contains(&format!("metrics on {metrics}: ")) && message.contains("--metrics="),
        "{message}"
    );

    // Without the option it is a name like any other.
    let site = Site::start();
    assert_eq!((site.get("/metrics", &[]).status, site.metrics), (404, None));
    site.write("metrics", b"of my own");
    assert_eq!(site.get("/metrics", &[]).body, "of my own");
}

#[test]
fn transfers_that_take_every_place_are_seen_and_what_they_counted_stays() {
    let site = watched(|config| config.limits.connections.open = 2);
    site.write("f", &noise(CONTENT));
    let before = scrape(&site);
    assert!(!before.has("longhaul_rtt_seconds") && before.get("longhaul_cwnd_bytes") == 0.0);
    assert_eq!((before.get("longhaul_sent_bytes_total"), before.get("longhaul_connections")), (0.0, 0.0));
    let version = format!("longhaul_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(before.get(&version), 1.0);

    let streams = [site.begin("/f"), site.begin("/f")];
    let during = scrape(&site);
    assert_eq!(during.get("longhaul_sending_connections"), 2.0);
    for gauge in ["cwnd_bytes", "rtt_seconds", "min_rtt_seconds", "pacing_rate_bytes_per_second"] {
        assert!(during.get(&format!("longhaul_{gauge}")) > 0.0, "{gauge}");
    }
    // The readers have stopped: their windows are the limit.
    let limited = "longhaul_rwnd_limited_seconds_total";
    let later = scrape_until(&site, |now| now.get(limited) > during.get(limited) + 0.1);
    assert!(later.get("longhaul_sent_bytes_total") < 2.0 * CONTENT as f64);

    for mut stream in streams {
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    let after = scrape_until(&site, |now| now.get("longhaul_connections") == 0.0);
    assert_eq!(after.get("longhaul_sending_connections"), 0.0);
    let heads = after.get("longhaul_sent_bytes_total") - 2.0 * CONTENT as f64;
    assert!((2.0..2000.0).contains(&heads), "{heads} bytes besides the files: scrapes are none of them");
    assert_eq!(after.get("longhaul_replies_total{code=\"200\"}"), 2.0);
    let all = [before, during, later, after, scrape(&site)];
    for (one, next) in all.iter().zip(&all[1..]) {
        for counter in COUNTERS.split(' ').map(|name| format!("longhaul_{name}_total")) {
            assert!(next.get(&counter) >= one.get(&counter), "{counter}");
        }
    }
}

/// Connections are kept open, because the end of one is acknowledged like a byte.
#[test]
fn scrapes_side_by_side_count_short_replies_once() {
    let site = Site::with(with_metrics);
    site.write("f", &noise(5000));
    let client = || {
        let (mut talk, mut received) = (Talk::to(&site), 0);
        for _ in 0..200 {
            received += talk.fetch("/f");
        }
        (talk, received)
    };
    let done = AtomicBool::new(false);
    let scraper = || {
        let mut before = 0.0;
        while !done.load(Ordering::Relaxed) {
            let now = scrape(&site).get("longhaul_sent_bytes_total");
            assert!(now >= before, "{now} after {before}");
            before = now;
        }
    };
    std::thread::scope(|threads| {
        let scrapers = [threads.spawn(scraper), threads.spawn(scraper)];
        let clients = [client; 3].map(|client| threads.spawn(client));
        let ended = clients.map(|client| client.join().unwrap());
        let idle = scrape_until(&site, |now| now.get("longhaul_sending_connections") == 0.0);
        done.store(true, Ordering::Relaxed);
        scrapers.into_iter().for_each(|scraper| scraper.join().unwrap());
        let received: usize = ended.iter().map(|(_, received)| received).sum();
        assert!(received > 3 * 200 * 5000);
        assert_eq!(idle.get("longhaul_sent_bytes_total"), received as f64);
        assert_eq!(idle.get("longhaul_connections"), 3.0);
    });
}

#[test]
fn metrics_are_answered_while_every_disk_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path(), "127.0.0.1:0".parse().unwrap());
    with_metrics(&mut config);
    let server = Server::bind(config).unwrap();
    let (address, stopper) = (server.addresses()[0], server.stopper());
    let metrics = server.metrics_address().unwrap();
    let (disk, hangs) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
        // The only thread that may wait for a disk does so.
        runtime.spawn_blocking(move || hangs.recv());
        runtime.block_on(server.run()).unwrap()
    });
    assert!(Scrape::of(metrics).has("longhaul_connections"));
    let mut file = TcpStream::connect(address).unwrap();
    file.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    file.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert!(file.read(&mut [0; 1]).is_err(), "files were to hang");
    assert!(Scrape::of(metrics).has("longhaul_connections"));
    drop(disk);
    stopper.end();
    thread.join().unwrap();
}

#[test]
fn received_bytes_and_buffers_of_uploads_count() {
    let site = writable_with(with_metrics);
    let counts = || {
        let page = scrape(&site);
        ["received_bytes_total", "uploads", "application_buffer_bytes"]
            .map(|name| page.get(&format!("longhaul_{name}")))
    };
    let mut talk = Talk::to(&site);
    talk.send(&head("PUT", "/f", &["Content-Length: 10"]), b"12345");
    wait_for(|| counts() == [5.0, 1.0, f64::from(4 << 20)]);
    assert_eq!(talk.ask("", b"67890").status, 201);
    wait_for(|| counts() == [10.0, 0.0, 0.0]);
}
