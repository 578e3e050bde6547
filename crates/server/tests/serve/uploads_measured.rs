//! What is told of uploads: the three buffers of a receiver, and what was received.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longhaul_core::event::{Event, JobId, JobTag, Observer};
use longhaul_core::telemetry::Sample;
use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_server::{Metrics, Telemetry, Token, Tokens};

use crate::site::{Site, noise};
use crate::uploads::{Talk, head, writable_with};
use crate::uploads_refused::wait_for;

#[derive(Default)]
struct Samples(Mutex<Vec<Sample>>);

impl Observer for Samples {
    fn on(&self, _job: &JobTag, _at: Duration, event: &Event) {
        if let Event::Sample(sample) = event {
            self.0.lock().unwrap().push(Sample::clone(sample));
        }
    }
}

#[test]
fn samples_show_the_three_buffers_while_a_file_comes() {
    let samples = Arc::new(Samples::default());
    let observer: Arc<dyn Observer> = samples.clone();
    let job = JobTag::new(JobId::default(), "http://h/");
    let telemetry = Telemetry { job, observer, sample: Some(SampleInterval::new(Duration::from_millis(2))) };
    let writable = |config: &mut longhaul_server::Config| {
        config.writable = true;
        config.tokens = Tokens::One(Token::new("s3cret").unwrap());
    };
    let site = Site::observed(writable, Some(telemetry));
    let file = noise(24 << 20);
    let mut talk = Talk::to(&site);
    talk.send(&head("PUT", "/f", &[&format!("Content-Length: {}", file.len())]), b"");
    for piece in file.chunks(1 << 20) {
        talk.send("", piece);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(talk.answer().status, 201);
    site.stopper.finish();
    site.ended();
    let samples = samples.0.lock().unwrap().clone();
    let during: Vec<_> = samples.iter().filter(|s| !s.streams.is_empty() && s.segments.is_some()).collect();
    assert!(during.len() > 10, "{} samples", during.len());
    assert!(during.iter().any(|s| s.segments.unwrap().in_use > 0 && s.streams[0].tcp.is_some()));
    assert!(during.iter().any(|s| s.segments.unwrap().capacity() >= Bytes::mib(64)));
    assert!(samples.iter().any(|s| s.page_cache.is_some() || s.host_pages.is_some()));
    assert!(samples.is_sorted_by_key(|s| s.moved) && samples.is_sorted_by_key(|s| s.written));
    let (last, size) = (samples.last().unwrap(), file.len() as u64);
    // The answer's bytes are acknowledged too.
    assert!((size..size + 1000).contains(&last.moved.get()), "{}", last.moved);
    assert_eq!((last.written, last.segments), (Some(Bytes::new(size)), None));
}

#[test]
fn metrics_count_what_was_received() {
    let site = writable_with(|config| config.metrics = Metrics::At("127.0.0.1:0".parse().unwrap()));
    let of = |name: &str| -> u64 {
        let page = site.metrics_page();
        let line = page.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let mut talk = Talk::to(&site);
    talk.send(&head("PUT", "/f", &["Content-Length: 10"]), b"12345");
    wait_for(|| of("longhaul_received_bytes_total") == 5);
    assert_eq!((of("longhaul_uploads"), of("longhaul_application_buffer_bytes")), (1, 4 << 20));
    assert_eq!(talk.ask("", b"67890").status, 201);
    wait_for(|| of("longhaul_uploads") == 0);
    assert_eq!((of("longhaul_received_bytes_total"), of("longhaul_application_buffer_bytes")), (10, 0));
}
