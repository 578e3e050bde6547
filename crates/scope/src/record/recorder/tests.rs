use longhaul_core::event::{Done, Warning};
use longhaul_core::tcp_info::{SIZE, TcpInfo};
use longhaul_core::telemetry::{PageCache, Sockets};
use longhaul_core::units::Bytes;
use std::fs;

use super::super::{Record, RecordErrorKind};
use super::*;

const INTERVAL: Duration = Duration::from_millis(10);

fn create(path: &Path) -> Result<Recorder, RecordError> {
    Recorder::create(path, Side::Get, "http://host/file", INTERVAL)
}

fn sample(streams: usize) -> Event {
    sample_with(streams, TcpInfo::from_bytes(&[1; SIZE]))
}

fn sample_with(streams: usize, tcp: TcpInfo) -> Event {
    let tcp = Some(tcp);
    let stream = |stream| StreamSample { stream, unread: Bytes::new(7), tcp };
    let streams: Vec<_> = (0..streams).map(stream).collect();
    let page_cache = Some(PageCache { dirty: Bytes::new(4096), ..PageCache::default() });
    let sockets = Sockets::of(&streams, Default::default());
    Event::Sample(Box::new(Sample { sockets, streams, page_cache, ..Sample::default() }))
}

fn opened() -> Event {
    Event::Opened {
        path: "/f".into(),
        size: None,
        resumed: Bytes::ZERO,
        resumable: true,
        writer: "direct".into(),
    }
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn report(recorder: &Recorder, job: u64, at: Duration, event: &Event) {
    recorder.on(&JobTag::new(JobId::new(job), "http://host/file"), at, event);
}

fn done(path: &str) -> Event {
    Event::Done(Box::new(Done { path: path.into(), ..Done::default() }))
}

#[test]
fn written_events_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    report(
        &recorder,
        1,
        millis(1),
        &Event::Connected { stream: 0, peer: "[::1]:80".parse().unwrap(), rtt: None },
    );
    report(&recorder, 1, millis(2), &sample(2));
    report(&recorder, 1, millis(3), &Event::Progress(Default::default()));
    report(&recorder, 1, millis(4), &Event::Warning(Warning::NoRanges));
    let target = "/f?...".to_owned();
    let (method, sent, took) = ("GET".to_owned(), Bytes::new(5), millis(3));
    report(&recorder, 1, millis(5), &Event::Replied { stream: 1, method, target, status: 206, sent, took });
    report(&recorder, 1, millis(6), &Event::Sampled { samples: 1, cpu: millis(500) });
    report(&recorder, 1, millis(7), &done("/f"));
    recorder.finish().unwrap();
    recorder.finish().unwrap();
    report(&recorder, 1, millis(8), &sample(1));

    let record = Record::load(&path).unwrap();
    assert_eq!(
        (record.header.side, record.header.interval, record.damage.as_deref()),
        (Side::Get, 0.01, None)
    );
    assert_eq!((record.header.what.as_str(), record.header.version), ("http://host/file", VERSION));
    let (at, read) = &record.samples[0];
    assert_eq!((*at, record.samples.len(), read.streams.len()), (0.002, 1, 2));
    assert_eq!((read.sockets.unread.get(), read.page_cache.unwrap().dirty.get()), (14, 4096));
    assert_eq!(read.streams[1].tcp.as_ref().unwrap().get("tcpi_bytes_acked"), Some(0x0101_0101_0101_0101));
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.contains(r#""tcpi_rcv_wnd":16843009"#), "{written}");
    assert_eq!(record.events.len(), 4, "{written}");
    assert_eq!(record.outcome(), Some(&done("/f")));
    let with_url = written.lines().filter(|line| line.contains(r#""url":"http://host/file""#));
    assert_eq!((with_url.count(), written.matches(r#""job":1,"#).count()), (1, 5), "{written}");
    let end = record.end.unwrap();
    assert_eq!((end.telemetry.samples, end.telemetry.dropped), (1, 0));
    assert!((0.5..0.6).contains(&end.telemetry.cpu), "{end:?}");
}

#[test]
fn a_later_job_stands_where_it_started() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    report(&recorder, 1, millis(2), &sample(1));
    thread::sleep(millis(50));
    (0..3).for_each(|at| report(&recorder, 2, millis(at), &sample(1)));
    report(&recorder, 1, millis(60), &sample(1));
    recorder.finish().unwrap();
    let jobs = Record::load_jobs(&path).unwrap();
    let times = |job: usize| jobs[job].samples.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!((jobs.len(), times(0)), (2, vec![0.002, 0.06]));
    let second = times(1);
    assert!(second[0] >= 0.05 && (second[2] - second[0] - 0.002).abs() < 1e-5, "{second:?}");
}

#[test]
fn lines_reach_kernel_within_flush_interval() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    // The header is written before any event.
    assert!(Record::load(&path).unwrap().damage.unwrap().contains("without an end"));
    report(&recorder, 1, millis(1), &sample(1));
    thread::sleep(FLUSH_INTERVAL * 3);
    assert_eq!(Record::load(&path).unwrap().samples.len(), 1);
}

#[test]
fn replaces_a_record_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let fails = |path: &Path, word: &str| {
        let error = create(path).unwrap_err();
        assert_eq!(error.kind(), RecordErrorKind::CannotCreate, "{error}");
        let text = error.to_string();
        assert!(text.contains(word) && text.contains(path.to_str().unwrap()), "{text}");
    };
    fs::write(&path, "").unwrap();
    let recorder = create(&path).unwrap();
    fails(&path, "another transfer");
    (0..100).for_each(|at| report(&recorder, 1, millis(at), &sample(1)));
    recorder.finish().unwrap();
    let next = create(&path).unwrap();
    report(&next, 1, millis(1), &opened());
    next.finish().unwrap();
    assert_eq!(Record::load(&path).unwrap().samples.len(), 0);
    // A record truncated by a crash is a record nevertheless.
    fs::write(&path, r#"{"rec"#).unwrap();
    Recorder::create(&path, Side::Serve, "/srv", INTERVAL).unwrap().finish().unwrap();
    assert_eq!(Record::load(&path).unwrap().header.side, Side::Serve);

    fs::write(&path, "my thesis").unwrap();
    fails(&path, "something else");
    assert_eq!(fs::read_to_string(&path).unwrap(), "my thesis");
    fails(dir.path(), "a directory");
    fails(Path::new("/dev/null"), "a device");
    fails(&dir.path().join("none/r.jsonl"), "No such file");
    fails(&path.join("r.jsonl"), "Not a directory");
}

#[test]
fn an_earlier_record_is_kept_until_the_file_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let first = create(&path).unwrap();
    (0..100).for_each(|at| report(&first, 1, millis(at), &sample(1)));
    report(&first, 1, millis(100), &done("first"));
    first.finish().unwrap();
    let outcome = || Record::load(&path).unwrap().outcome().cloned();

    let failing = create(&path).unwrap();
    report(&failing, 1, millis(1), &Event::Warning(Warning::NoRanges));
    thread::sleep(FLUSH_INTERVAL * 2);
    assert_eq!(create(&path).unwrap_err().kind(), RecordErrorKind::CannotCreate, "it is locked all the same");
    report(&failing, 1, millis(2), &Event::Error { message: "failed".into(), exit_code: 69 });
    failing.finish().unwrap();
    assert_eq!(outcome(), Some(done("first")));
    let killed = create(&path).unwrap();
    report(&killed, 1, millis(1), &sample(1));
    drop(killed);
    assert_eq!(outcome(), Some(done("first")));

    // The writer thread releases the lock when its channel closes.
    let next = (0..50).find_map(|_| {
        thread::sleep(FLUSH_INTERVAL);
        create(&path).ok()
    });
    let next = next.unwrap();
    report(&next, 1, millis(1), &Event::Warning(Warning::NoRanges));
    report(&next, 1, millis(2), &opened());
    thread::sleep(FLUSH_INTERVAL * 3);
    assert_eq!(Record::load(&path).unwrap().events.len(), 2, "what came before is there, and soon");
    report(&next, 1, millis(3), &sample(1));
    report(&next, 1, millis(4), &done("next"));
    next.finish().unwrap();
    let record = Record::load(&path).unwrap();
    assert_eq!((record.damage, record.events.len(), record.samples.len()), (None, 3, 1));
    assert_eq!(outcome(), Some(done("next")));
}

/// Drops samples and no other events.
#[test]
fn never_waits_and_counts_what_it_drops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let recorder = create(&path).unwrap();
    // More than a thread can write in this time: a line of 2,000 streams has 1 MB.
    let many = sample_with(2000, TcpInfo::from_bytes(&[1; 100]));
    let began = Instant::now();
    (0..50).for_each(|at| report(&recorder, 1, millis(at), &many));
    report(&recorder, 1, millis(50), &done("/f"));
    assert!(began.elapsed() < millis(500), "{:?}", began.elapsed());
    recorder.finish().unwrap();
    let record = Record::load(&path).unwrap();
    assert_eq!(record.outcome(), Some(&done("/f")));
    let dropped = record.end.unwrap().telemetry.dropped;
    assert!(dropped > 0, "nothing had to be dropped");
    assert_eq!(record.samples.len() as u64 + dropped, 50);
    assert_eq!(recorder.shared.queued.load(Ordering::Relaxed), 0);
}
