use longhaul_core::event::{Done, Warning};
use longhaul_core::tcp_info::{SIZE, TcpInfo};
use longhaul_core::telemetry::{PageCache, Sockets};
use longhaul_core::units::Bytes;
use std::fs;

use super::super::Record;
use super::*;

const INTERVAL: Duration = Duration::from_millis(10);

fn create(path: &Path) -> Result<Recorder, Failure> {
    Recorder::create(path, Side::Get, "http://host/file", None, INTERVAL)
}

/// A sample of some streams.
fn sample(streams: usize) -> Event {
    let tcp = Some(TcpInfo::from_bytes(&[1; SIZE]));
    let streams: Vec<_> =
        (0..streams).map(|stream| StreamSample { stream, unread: Bytes::new(7), tcp }).collect();
    let page_cache = Some(PageCache { dirty: Bytes::new(4096), ..PageCache::default() });
    let sockets = Sockets::of(&streams, Default::default());
    Event::Sample(Box::new(Sample { sockets, streams, page_cache, ..Sample::default() }))
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Reports an event of a job at a time in milliseconds.
fn report(recorder: &Recorder, job: u64, at: u64, event: &Event) {
    recorder.on(&JobTag::new(JobId::new(job), "http://host/file"), millis(at), event);
}

/// Waits until the record at `path` has the content.
#[track_caller]
fn until(path: &Path, is_there: impl Fn(&Record) -> bool) {
    let began = Instant::now();
    while !Record::load(path).is_ok_and(|record| is_there(&record)) {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", Record::load(path));
        thread::sleep(FLUSH_INTERVAL / 10);
    }
}

fn done(path: &str) -> Event {
    Event::Done(Box::new(Done { path: path.into(), ..Done::default() }))
}

#[test]
fn written_events_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    // The header is written before any event.
    assert!(Record::load(&path).unwrap().damage.unwrap().contains("without an end"));
    let (method, target, sent) = ("GET".to_owned(), "/f?...".to_owned(), Bytes::new(5));
    report(&recorder, 1, 1, &Event::Connected { stream: 0, peer: "[::1]:80".parse().unwrap(), rtt: None });
    report(&recorder, 1, 2, &sample(2));
    until(&path, |record| record.samples.len() == 1);
    report(&recorder, 1, 3, &Event::Progress(Default::default()));
    report(&recorder, 1, 4, &Event::Warning(Warning::NoRanges));
    let replied = Event::Replied { stream: 1, method, target, status: 206, sent, took: millis(3) };
    report(&recorder, 1, 5, &replied);
    report(&recorder, 1, 6, &Event::Sampled { samples: 1, cpu: millis(500) });
    report(&recorder, 1, 7, &done("/f"));
    recorder.finish().unwrap();
    recorder.finish().unwrap();
    report(&recorder, 1, 8, &sample(1));

    let record = Record::load(&path).unwrap();
    let Header { side, interval, what, version, .. } = &record.header;
    assert_eq!((*side, *interval, what.as_str(), *version), (Side::Get, 0.01, "http://host/file", VERSION));
    let (at, read) = &record.samples[0];
    assert_eq!((*at, record.samples.len(), read.streams.len()), (0.002, 1, 2));
    assert_eq!((read.sockets.unread.get(), read.page_cache.unwrap().dirty.get()), (14, 4096));
    assert_eq!(read.streams[1].tcp.unwrap().tcpi_bytes_acked, 0x0101_0101_0101_0101);
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains(r#""tcpi_rcv_wnd":16843009"#), "{written}");
    assert_eq!((record.damage.as_deref(), record.events.len()), (None, 4), "{written}");
    assert_eq!(record.outcome(), Some(&done("/f")));
    let with_url = written.lines().filter(|line| line.contains(r#""url":"http://host/file""#));
    assert_eq!((with_url.count(), written.matches(r#""job":1,"#).count()), (1, 5), "{written}");
    let end = record.end.unwrap().telemetry;
    assert!((end.samples, end.dropped) == (1, 0) && end.cpu >= 0.5, "{end:?}");
}

#[test]
fn a_later_job_stands_where_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    report(&recorder, 1, 2, &sample(1));
    let before = Instant::now();
    while before.elapsed() < millis(20) {
        thread::yield_now();
    }
    (0..3).for_each(|at| report(&recorder, 2, at, &sample(1)));
    report(&recorder, 1, 60, &sample(1));
    recorder.finish().unwrap();
    let jobs = Record::load_jobs(&path).unwrap();
    let times = |job: usize| jobs[job].samples.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!((jobs.len(), times(0)), (2, vec![0.002, 0.06]));
    let second = times(1);
    assert!(second[0] >= 0.02 && (second[2] - second[0] - 0.002).abs() < 1e-5, "{second:?}");
}

#[test]
fn record_is_locked_by_its_transfer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let _recorder = create(&path).unwrap();
    let locked = create(&path).unwrap_err();
    assert_eq!(locked.kind, FailureKind::CannotCreate);
    assert!(locked.to_string().contains("another transfer"), "{locked}");
}

#[test]
fn only_samples_are_dropped_and_counted_while_the_queue_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    // The queue is full already.
    recorder.shared.queued.store(QUEUE_BYTES, Ordering::Relaxed);
    (0..50).for_each(|at| report(&recorder, 1, at, &sample(1)));
    report(&recorder, 1, 50, &done("/f"));
    assert_eq!(recorder.shared.dropped.load(Ordering::Relaxed), 50);
    recorder.finish().unwrap();
    let record = Record::load(&path).unwrap();
    assert_eq!((record.outcome(), record.samples.len()), (Some(&done("/f")), 0));
    assert_eq!(record.end.unwrap().telemetry.dropped, 50);
    assert_eq!(recorder.shared.queued.load(Ordering::Relaxed), QUEUE_BYTES);
}
