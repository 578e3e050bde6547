//! What a server tells an observer.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::event::{Event, JobId, JobTag, Observer};
use longhaul_core::telemetry::Sample;
use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_server::Telemetry;

use crate::site::{Site, noise};

const CONTENT: usize = 24 << 20;

#[derive(Default)]
struct Heard(Mutex<Vec<(Duration, Event)>>);

impl Observer for Heard {
    fn on(&self, _job: &JobTag, at: Duration, event: &Event) {
        self.0.lock().unwrap().push((at, event.clone()));
    }
}

impl Heard {
    fn all(&self) -> Vec<(Duration, Event)> {
        self.0.lock().unwrap().clone()
    }

    fn samples(&self) -> Vec<Sample> {
        let sample = |(_, event)| if let Event::Sample(sample) = event { Some(*sample) } else { None };
        self.all().into_iter().filter_map(sample).collect()
    }
}

fn observed(sample: Option<Duration>) -> (Site, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let observer: Arc<dyn Observer> = heard.clone();
    let job = JobTag::new(JobId::default(), "http://h/");
    let sample = sample.map(SampleInterval::new);
    (Site::observed(|_| {}, Some(Telemetry { job, observer, sample })), heard)
}

#[test]
fn connections_and_replies_are_told_in_order() {
    let (site, heard) = observed(None);
    site.write("f", b"content");
    assert_eq!(site.get("/f?v=1", &[]).status, 200);
    assert_eq!(site.ask("HEAD", "/none", &[]).status, 404);
    site.raw("nonsense\r\n\r\n");
    site.stopper.finish();
    site.ended();
    let all = heard.all();
    assert!(all.is_sorted_by_key(|(at, _)| *at));
    let mut told = Vec::new();
    for (at, event) in &all {
        told.push(match event {
            Event::Connected { stream, peer, rtt } => {
                assert!(peer.ip().is_loopback() && rtt.is_some());
                format!("{stream} connected")
            }
            Event::Replied { stream, method, target, status, sent, took } => {
                assert!(took <= at);
                format!("{stream} {method} {target} {status} {}", sent.get())
            }
            Event::Closed { stream } => format!("{stream} closed"),
            other => panic!("{other:?}"),
        });
    }
    // Connections end side by side with the next one's beginning.
    let of =
        |stream: &str| -> Vec<&str> { told.iter().filter_map(|line| line.strip_prefix(stream)).collect() };
    assert_eq!(of("0 "), ["connected", "GET /f?... 200 7", "closed"]);
    assert_eq!(of("1 "), ["connected", "HEAD /none 404 0", "closed"]);
    assert!(matches!(of("2 ")[..], ["connected", refused, "closed"] if refused.starts_with("- - 400 ")));
    assert_eq!(told.len(), 9);
}

#[test]
fn samples_follow_a_transfer_to_its_last_acknowledged_byte() {
    let (site, heard) = observed(Some(Duration::from_millis(5)));
    site.write("f", &noise(CONTENT));
    let idle: Vec<_> = (0..20).map(|_| site.connect()).collect();
    std::thread::sleep(Duration::from_millis(100));
    let quiet = heard.samples();
    assert_eq!(quiet.len(), 1, "an idle server has only its beginning to tell");
    assert_eq!((quiet[0].moved, quiet[0].streams.len(), &quiet[0].segments), (Bytes::ZERO, 0, &None));

    let mut stream = site.connect();
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let (mut part, mut got) = (vec![0; 256 << 10], 0);
    while let length @ 1.. = stream.read(&mut part).unwrap() {
        got += length;
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(stream);
    drop(idle);
    site.stopper.finish();
    site.ended();

    let samples = heard.samples();
    assert!(samples.len() > 10, "{} samples", samples.len());
    assert!(samples.is_sorted_by_key(|sample| sample.moved));
    let during: Vec<_> = samples.iter().filter(|sample| !sample.streams.is_empty()).collect();
    for sample in &during {
        // The idle ones came first and have the numbers up to 19.
        assert!(sample.streams.iter().all(|stream| stream.stream == 20 && stream.tcp.is_some()));
        assert_eq!((sample.written, sample.page_cache), (None, None));
        assert!(sample.sockets.cwnd.is_some() && sample.sockets.rtt.is_some());
    }
    let last = samples.last().unwrap();
    assert!(last.streams.is_empty());
    // One more than was read: the end of the connection is acknowledged like a byte.
    assert!((0..=1).contains(&(last.moved.get() - got as u64)), "{} of {got}", last.moved.get());
    let Some((_, Event::Sampled { samples: count, cpu })) = heard.all().pop() else { panic!("no end") };
    assert_eq!((count, cpu > Duration::ZERO), (samples.len() as u64, true));
}

#[test]
fn replies_shorter_than_the_interval_are_counted() {
    for interval in [Duration::from_millis(5), Duration::from_secs(10)] {
        let (site, heard) = observed(Some(interval));
        let content = "text ".repeat(600);
        site.write("f", content.as_bytes());
        let mut received = 0;
        for _ in 0..20 {
            received += site.raw("GET /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").len();
        }
        // One that stays open, and has had its reply long before the end.
        let mut kept = site.connect();
        kept.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let mut reply = Vec::new();
        while !reply.ends_with(content.as_bytes()) {
            let mut part = [0; 4096];
            let length = kept.read(&mut part).unwrap();
            reply.extend_from_slice(&part[..length]);
        }
        received += reply.len();
        std::thread::sleep(Duration::from_millis(100));
        let before_the_end = heard.samples();
        site.stopper.finish();
        drop(kept);
        site.ended();
        let samples = heard.samples();
        assert!(samples.is_sorted_by_key(|sample| sample.moved));
        // The end of a connection may be acknowledged like a byte.
        let told = |samples: &[Sample]| samples.last().unwrap().moved.get() as usize;
        assert!((received..=received + 21).contains(&told(&samples)), "{} of {received}", told(&samples));
        if interval < Duration::from_secs(1) {
            assert!(told(&before_the_end) >= received, "{} of {received}", told(&before_the_end));
        }
    }
}

#[test]
fn among_many_connections_samples_are_taken_less_often() {
    let (site, heard) = observed(Some(Duration::from_millis(10)));
    site.write("f", &noise(CONTENT));
    let _streams: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = site.connect();
            stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
            stream.read_exact(&mut [0; 1]).unwrap();
            stream
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    site.stopper.end();
    site.ended();
    let all = heard.all();
    let Some((end, Event::Sampled { cpu, .. })) = all.last() else { panic!("no end") };
    // Reading takes 1 %, waking up and the observer the rest; every 10 ms it would be tens of per cents.
    assert!(*cpu < *end / 25, "{cpu:?} of {end:?}");
    assert!(heard.samples().iter().any(|sample| sample.streams.len() == 300));
}

#[test]
fn idle_connections_are_not_read() {
    let (site, heard) = observed(Some(Duration::from_millis(10)));
    site.write("f", b"x");
    let mut idle: Vec<_> = (0..400).map(|_| site.connect()).collect();
    for stream in &mut idle {
        stream.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 2000]).unwrap() > 100);
    }
    std::thread::sleep(Duration::from_millis(300));
    let before = heard.samples().len();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(heard.samples().len(), before, "idle connections are still read");
}
