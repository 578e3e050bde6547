//! `/metrics`: well-formed, true, out of the way.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_server::{Config, Metrics, ServeError, Server};

use crate::site::{Answer, Site, curl, noise};
use crate::tls;

const CONTENT: usize = 24 << 20;
const COUNTERS: [&str; 6] = [
    "longhaul_connections_total",
    "longhaul_sent_bytes_total",
    "longhaul_retransmits_total",
    "longhaul_busy_seconds_total",
    "longhaul_rwnd_limited_seconds_total",
    "longhaul_sndbuf_limited_seconds_total",
];

/// A scrape: values by name and labels.
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let answer = Answer::read(&text);
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

/// Scrapes until `ready`, for at most 5 seconds.
fn scrape_until(metrics: SocketAddr, ready: impl Fn(&Scrape) -> bool) -> Scrape {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let scrape = Scrape::of(metrics);
        if ready(&scrape) {
            return scrape;
        }
        assert!(Instant::now() < deadline, "{:?}", scrape.0);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn with_metrics(config: &mut Config) {
    config.metrics = Metrics::At("127.0.0.1:0".parse().unwrap());
}

fn scrape(site: &Site) -> Scrape {
    Scrape::of(site.metrics.unwrap())
}

/// Asks for a file and reads its first byte.
fn begin(site: &Site, target: &str) -> TcpStream {
    let mut stream = site.connect();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_exact(&mut [0; 1]).unwrap();
    stream
}

#[test]
fn without_being_asked_for_it_is_a_name_like_any_other() {
    let site = Site::start();
    assert_eq!((site.get("/metrics", &[]).status, site.metrics), (404, None));
    site.write("metrics", b"of my own");
    assert_eq!(site.get("/metrics", &[]).body, "of my own");
}

#[test]
fn at_an_address_of_its_own_there_is_nothing_else() {
    let site = Site::with(with_metrics);
    site.write("f", b"content");
    let metrics = site.metrics.unwrap();
    assert_eq!((site.get("/metrics", &[]).status, site.get("/f", &[]).body.as_str()), (404, "content"));
    let ask = |method: &str, target: &str| {
        let mut stream = TcpStream::connect(metrics).unwrap();
        write!(stream, "{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        Answer::read(&text).status
    };
    assert_eq!(
        (ask("GET", "/f"), ask("GET", "/"), ask("PUT", "/metrics"), ask("HEAD", "/metrics")),
        (404, 404, 405, 200)
    );
    // Nothing that happens there counts.
    let scrape = scrape_until(metrics, |now| now.get("longhaul_connections") == 0.0);
    assert_eq!(scrape.get("longhaul_connections_total"), 2.0);
    assert_eq!(scrape.get("longhaul_replies_total{code=\"200\"}"), 1.0);
    assert_eq!(scrape.get("longhaul_replies_total{code=\"404\"}"), 1.0);
    let taken = Server::bind(Config {
        metrics: Metrics::At(metrics),
        ..Config::new(site.dir.path(), "127.0.0.1:0".parse().unwrap())
    });
    let error = taken.err().unwrap();
    assert!(matches!(error, ServeError::Metrics { address, .. } if address == metrics));
    assert!(error.to_string().contains("--metrics="), "{error}");
}

#[test]
fn its_own_address_answers_when_files_have_taken_every_place() {
    let site = Site::with(|config| {
        config.metrics = Metrics::At("127.0.0.1:0".parse().unwrap());
        config.limits.connections = 1;
    });
    site.write("f", &noise(CONTENT));
    let _stream = begin(&site, "/f");
    assert_eq!(scrape(&site).get("longhaul_sending_connections"), 1.0);
}

#[test]
fn a_transfer_is_seen_and_what_it_counted_stays() {
    let site = Site::with(with_metrics);
    site.write("f", &noise(CONTENT));
    let before = scrape(&site);
    assert!(!before.has("longhaul_rtt_seconds") && before.get("longhaul_cwnd_bytes") == 0.0);
    assert_eq!((before.get("longhaul_sent_bytes_total"), before.get("longhaul_connections")), (0.0, 0.0));
    let version = format!("longhaul_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(before.get(&version), 1.0);

    let mut stream = begin(&site, "/f");
    let during = scrape(&site);
    assert_eq!(during.get("longhaul_sending_connections"), 1.0);
    for gauge in ["cwnd_bytes", "rtt_seconds", "min_rtt_seconds", "pacing_rate_bytes_per_second"] {
        assert!(during.get(&format!("longhaul_{gauge}")) > 0.0, "{gauge}");
    }
    // The reader has stopped: its window is what limits.
    std::thread::sleep(Duration::from_millis(300));
    let later = scrape(&site);
    let limited = "longhaul_rwnd_limited_seconds_total";
    assert!(later.get(limited) > during.get(limited) + 0.1);
    assert!(later.get("longhaul_sent_bytes_total") < CONTENT as f64);

    stream.read_to_end(&mut Vec::new()).unwrap();
    drop(stream);
    let after = scrape_until(site.metrics.unwrap(), |now| now.get("longhaul_connections") == 0.0);
    assert_eq!(after.get("longhaul_sending_connections"), 0.0);
    let head = after.get("longhaul_sent_bytes_total") - CONTENT as f64;
    assert!((1.0..1000.0).contains(&head), "{head} bytes besides the file: scrapes are none of them");
    assert_eq!(after.get("longhaul_replies_total{code=\"200\"}"), 1.0);
    let all = [before, during, later, after, scrape(&site)];
    for (one, next) in all.iter().zip(&all[1..]) {
        for counter in COUNTERS {
            assert!(next.get(counter) >= one.get(counter), "{counter}");
        }
    }
}

#[test]
fn a_kept_connection_counts_each_reply_once_and_is_not_read_while_idle() {
    let site = Site::with(with_metrics);
    site.write("f", &noise(1 << 20));
    let mut stream = site.connect();
    let mut reply = vec![0; 0];
    for round in 1..=3 {
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        reply.clear();
        while reply.len() < 1 << 20 || !reply_is_whole(&reply) {
            let mut part = vec![0; 64 << 10];
            let length = stream.read(&mut part).unwrap();
            reply.extend_from_slice(&part[..length]);
        }
        let idle = scrape_until(site.metrics.unwrap(), |now| {
            (now.get("longhaul_sending_connections"), now.get("longhaul_connections")) == (0.0, 1.0)
        });
        assert_eq!(idle.get("longhaul_sent_bytes_total"), (round * reply.len()) as f64);
    }
    // One that sends no request counts as a connection, and what is refused as a reply.
    let answer = Answer::read(&site.raw("nonsense\r\n\r\n"));
    let code = format!("longhaul_replies_total{{code=\"{}\"}}", answer.status);
    assert_eq!(scrape(&site).get(&code), 1.0);
}

fn reply_is_whole(reply: &[u8]) -> bool {
    let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    reply.len() == head + (1 << 20)
}

#[test]
fn a_scrape_among_a_hundred_transfers_is_quick() {
    let site = Site::with(with_metrics);
    site.write("f", &noise(CONTENT));
    let _streams: Vec<TcpStream> = (0..100).map(|_| begin(&site, "/f")).collect();
    let started = Instant::now();
    let scrape = scrape(&site);
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(scrape.get("longhaul_sending_connections"), 100.0);
    assert_eq!(scrape.get("longhaul_connections"), 100.0);
}

#[test]
fn scrapes_side_by_side_count_short_replies_once() {
    let site = Site::with(with_metrics);
    site.write("f", &noise(5000));
    let client = || {
        let (mut stream, mut received) = (site.connect(), 0);
        for _ in 0..200 {
            stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            let mut reply = Vec::new();
            while !reply.windows(4).any(|four| four == b"\r\n\r\n") || reply.len() < 5000 {
                let mut part = vec![0; 8192];
                let length = stream.read(&mut part).unwrap();
                reply.extend_from_slice(&part[..length]);
            }
            let head = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let mut rest = vec![0; head + 5000 - reply.len()];
            stream.read_exact(&mut rest).unwrap();
            received += head + 5000;
        }
        (stream, received)
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
    let received: usize = std::thread::scope(|threads| {
        let scrapers = [threads.spawn(scraper), threads.spawn(scraper)];
        let clients: Vec<_> = (0..3).map(|_| threads.spawn(client)).collect();
        // Kept open, for the end of a connection is acknowledged like a byte.
        let ended: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let idle = scrape_until(site.metrics.unwrap(), |now| now.get("longhaul_sending_connections") == 0.0);
        done.store(true, Ordering::Relaxed);
        scrapers.into_iter().for_each(|scraper| scraper.join().unwrap());
        let received = ended.iter().map(|(_, received)| received).sum();
        assert_eq!(idle.get("longhaul_sent_bytes_total"), received as f64);
        received
    });
    assert!(received > 3 * 200 * 5000);
}

#[test]
fn it_answers_while_every_disk_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        metrics: Metrics::At("127.0.0.1:0".parse().unwrap()),
        ..Config::new(dir.path(), "127.0.0.1:0".parse().unwrap())
    };
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
fn encrypted_connections_count_too() {
    let dir = tempfile::tempdir().unwrap();
    let files = tls::files(dir.path());
    let cert = files.cert.to_str().unwrap().to_owned();
    let site = Site::with(|config| {
        config.tls = Some(files);
        with_metrics(config);
    });
    site.write("f", &noise(1 << 20));
    let url = format!("https://{}/f", site.address);
    let Some((code, body)) = curl(&["--cacert", &cert, &url]) else { return };
    assert_eq!((code, body.len()), (0, 1 << 20));
    let now = scrape_until(site.metrics.unwrap(), |now| now.get("longhaul_connections") == 0.0);
    // Records of TLS hold 16 KiB and add some bytes each.
    let more = now.get("longhaul_sent_bytes_total") - f64::from(1 << 20);
    assert!((1000.0..10_000.0).contains(&more), "{more} bytes of heads and encryption");
    assert_eq!(now.get("longhaul_replies_total{code=\"200\"}"), 1.0);
}
