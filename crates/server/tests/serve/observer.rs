//! What a server reports to an observer.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::event::{Event, JobId, JobTag, Observer};
use longhaul_core::telemetry::Sample;
use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_server::Telemetry;
use parking_lot::Mutex;

use crate::site::{Site, noise, wait_for};
use crate::uploads::Talk;

const CONTENT: usize = 24 << 20;

#[derive(Default)]
struct Heard(Mutex<Vec<(Duration, Event)>>);

impl Observer for Heard {
    fn on(&self, _job: &JobTag, at: Duration, event: &Event) {
        self.0.lock().push((at, event.clone()));
    }
}

impl Heard {
    fn all(&self) -> Vec<(Duration, Event)> {
        self.0.lock().clone()
    }

    fn samples(&self) -> Vec<Sample> {
        let sample = |(_, event)| if let Event::Sample(sample) = event { Some(*sample) } else { None };
        self.all().into_iter().filter_map(sample).collect()
    }

    fn moved(&self) -> u64 {
        self.samples().last().map_or(0, |sample| sample.moved.get())
    }
}

fn observed(sample: Option<Duration>) -> (Site, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let observer: Arc<dyn Observer> = heard.clone();
    let job = JobTag::new(JobId::default(), "http://h/");
    let sample = sample.map(SampleInterval::new);
    (Site::observed(|_| {}, Some(Telemetry { job, observer, sample })), heard)
}

/// Ends the server; returns what was heard until then.
fn end(site: Site, heard: &Heard) -> Vec<(Duration, Event)> {
    site.stopper.finish();
    site.ended();
    heard.all()
}

#[test]
fn samples_follow_a_transfer_to_its_last_acknowledged_byte_and_do_not_read_idle_connections() {
    let (site, heard) = observed(Some(Duration::from_millis(5)));
    site.write("f", &noise(CONTENT));
    site.write("small", b"x");
    let mut idle: Vec<_> = (0..20).map(|_| Talk::to(&site)).collect();
    let mut got: usize = idle.iter_mut().map(|talk| talk.fetch("/small")).sum();
    wait_for(|| heard.moved() == got as u64 && heard.samples().last().unwrap().streams.is_empty());
    let before = heard.samples();
    assert_eq!((before[0].moved, before[0].streams.len(), &before[0].segments), (Bytes::ZERO, 0, &None));

    let (mut stream, mut part, mut seen) = (site.begin("/f"), vec![0; 1 << 20], before.len());
    got += 1;
    while let length @ 1.. = stream.read(&mut part).unwrap() {
        got += length;
        // A further sample while the reply is in progress: the socket buffers hold less than half
        // of it.
        if got < CONTENT / 2 {
            wait_for(|| heard.samples().len() > seen);
            seen = heard.samples().len();
        }
    }
    drop((stream, idle));
    let all = end(site, &heard);

    let samples = heard.samples();
    assert!(samples.is_sorted_by_key(|sample| sample.moved));
    let during = || samples[before.len()..].iter().filter(|sample| !sample.streams.is_empty());
    assert!(during().count() > 5, "{} samples", samples.len());
    for sample in during() {
        // The idle ones came first and have the numbers up to 19.
        assert!(sample.streams.iter().all(|stream| stream.stream == 20 && stream.tcp.is_some()));
        assert_eq!((sample.written, sample.page_cache), (None, None));
        assert!(sample.sockets.windows.cwnd.is_some() && sample.sockets.times.rtt.is_some());
    }
    assert!(samples.last().unwrap().streams.is_empty());
    // The end of a connection may be acknowledged like a byte.
    assert!((0..=21).contains(&(heard.moved() - got as u64)), "{} of {got}", heard.moved());
    let Some((_, Event::Sampled { samples: count, cpu })) = all.last() else { panic!("no end") };
    assert_eq!((*count, *cpu > Duration::ZERO), (samples.len() as u64, true));
}

/// Reading 300 sockets takes 0.1 ms at the least, and may take a hundredth of the time.
#[test]
fn among_many_connections_samples_are_taken_less_often() {
    let (site, heard) = observed(Some(Duration::from_millis(1)));
    site.write("f", &noise(CONTENT));
    let _streams: Vec<_> = (0..300).map(|_| site.begin("/f")).collect();
    let of_all = || {
        let is_of_all = |event: &Event| matches!(event, Event::Sample(sample) if sample.streams.len() == 300);
        heard.all().into_iter().filter(|(_, event)| is_of_all(event)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    wait_for(|| of_all().len() > 10);
    let times = of_all();
    let each = (times[10] - times[0]) / 10;
    assert!(each >= Duration::from_millis(4), "{each:?} between samples");
    site.stopper.end();
}
