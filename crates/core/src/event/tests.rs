use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::*;
use crate::advice::{Finding, LimitedBy, Shares};
use crate::tcp_info::{SIZE, TcpInfo};
use crate::telemetry::{Segments, Snapshot, Sockets, StreamSample};
use crate::units::Rate;

/// Serialises an event as a line, and checks that it is parsed as `read`.
#[track_caller]
fn written_as(event: &Event, read: &Event) -> Value {
    let at = Duration::from_micros(1_500_000);
    let tag = JobTag::new(JobId::new(3), "http://h/f");
    let text = serde_json::to_string(&JobEvent::new(&tag, at, event)).unwrap();
    let again: JobEvent<'_> = serde_json::from_str(&text).unwrap();
    assert_eq!((again.at, again.job, again.url.as_deref()), (at, JobId::new(3), Some("http://h/f")));
    assert_eq!(*again.event, *read);
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn written(event: &Event) -> Value {
    written_as(event, event)
}

/// Asserts the line of an event, whose time, job and URL are the same in all.
#[track_caller]
fn assert_line(event: &Event, mut line: Value) {
    (line["at"], line["job"], line["url"]) = (1.5.into(), 3.into(), "http://h/f".into());
    assert_eq!(written(event), line);
}

fn opened(path: PathBuf) -> Event {
    Event::Opened { path, size: None, resumed: Bytes::ZERO, resumable: true, writer: "mmap".into() }
}

#[test]
fn event_is_one_small_object_with_its_name_job_and_url() {
    let event = Event::Retrying { stream: 2, reason: "reset".into(), wait: Duration::from_millis(250) };
    assert_line(&event, json!({ "event": "retrying", "stream": 2, "reason": "reset", "wait": 0.25 }));
    assert_eq!(written(&Event::Verifying)["event"], "verifying");
    let peer = "[::1]:80".parse().unwrap();
    let rtt = Some(Rtt::new(Duration::from_micros(200_001)));
    let connected = written(&Event::Connected { stream: 0, peer, rtt });
    assert_eq!((&connected["peer"], &connected["rtt"]), (&"[::1]:80".into(), &0.200001.into()));
    assert_eq!(written(&opened("/f".into())).get("size"), Some(&Value::Null));
    // A path that is not UTF-8.
    let tag = JobTag::new(JobId::new(3), "http://h/f");
    let event = opened(OsStr::from_bytes(b"/\xff").into());
    let text = serde_json::to_string(&JobEvent::new(&tag, Duration::ZERO, &event)).unwrap();
    assert!(text.contains("/\u{fffd}"), "{text}");
    let message = Warning::NoRanges.to_string();
    let recorded = Event::Warning(Warning::Recorded { message: message.clone() });
    assert_eq!(written_as(&Event::Warning(Warning::NoRanges), &recorded)["message"], message);
}

#[test]
fn done_event_keeps_the_field_names_of_its_consumers() {
    let done = Done {
        path: "/f".into(),
        bytes: Bytes::new(10),
        time: Duration::from_millis(20),
        goodput: Rate::bits_per_sec(4000),
        streams: 1,
        losses: LossCounts { out_of_order: Some(0), retransmits: None },
        finding: Finding {
            limit: LimitedBy::ReceiveWindow,
            shares: Shares::of([(LimitedBy::ReceiveWindow, Duration::from_secs(1))]),
            witnesses: vec![
                serde_json::from_str(r#"{"limit":"path","witness":"new","seconds":1,"rate_bps":9,"lost":0}"#)
                    .unwrap(),
            ],
            advice: vec!["wider".into()],
            change: None,
        },
        digest: "md5:900150983cd24fb0d6963f7d28e17f72".parse().ok(),
        ..Done::default()
    };
    let line = json!({ "event": "done", "path": "/f", "bytes": 10, "resumed": 0, "unchanged": false,
                       "seconds": 0.02, "goodput_bps": 4000, "streams": 1, "retransmits": null,
                       "out_of_order": 0, "limited_by": "receive-window",
                       "shares": { "receive-window": 1.0 }, "witnesses": [{ "limit": "path",
                       "witness": "unexplained", "seconds": 1.0, "rate_bps": 9, "lost": 0 }], "advice": ["wider"],
                       "digest": "md5:900150983cd24fb0d6963f7d28e17f72" });
    assert_line(&Event::Done(Box::new(done)), line);
    let error = written(&Event::Error { message: "gone".into(), exit_code: 66 });
    assert_eq!((&error["message"], &error["exit_code"]), (&"gone".into(), &66.into()));
}

#[test]
fn limit_is_serialised_by_name_and_its_change_with_its_age() {
    for limit in [LimitedBy::Limit, LimitedBy::ServerSendBuffer, LimitedBy::SlowStart, LimitedBy::Path] {
        assert_eq!(serde_json::to_value(limit).unwrap(), limit.name());
    }
    let line = written(&Event::Limited { by: LimitedBy::Loss, ago: Duration::from_millis(1200) });
    assert_eq!((&line["event"], &line["by"], &line["ago"]), (&"limited".into(), &"loss".into(), &1.2.into()));
    let old: Done = serde_json::from_str(r#"{"limited_by":"ramp-up"}"#).unwrap();
    assert_eq!((old.finding.limit, old.finding.shares), (LimitedBy::SlowStart, Shares::default()));
}

#[test]
fn progress_is_flat_and_null_where_unknown() {
    let sockets = Sockets { open: 2, unread: Bytes::new(5), ..Sockets::default() };
    let segments = Segments { in_use: 1, count: 4, size: Bytes::new(10) };
    let now = Snapshot { present: Bytes::new(7), sockets, segments, ..Snapshot::default() };
    let line = json!({ "event": "progress", "present": 7, "received": 0, "written": 0, "size": null,
                       "streams": 2, "rtt": null, "data_rtt": null, "rwin": null, "cwnd": null, "unread": 5,
                       "buffered": 10, "app_buffer": 40, "dirty": null, "writeback": null,
                       "out_of_order": 0, "retransmits": 0 });
    assert_line(&Event::Progress(Box::new(Progress::from(&now))), line);
}

#[test]
fn sample_omits_unknown_values() {
    let mut bytes = [1; SIZE];
    // The times of a sender: microseconds, which are serialised as seconds.
    bytes[168..192].fill(0);
    let tcp = Some(TcpInfo::from_bytes(&bytes));
    let streams = vec![StreamSample { stream: 0, unread: Bytes::new(7), tcp }];
    let sockets = Sockets::of(&streams, Default::default());
    let took = Some(Duration::from_micros(250));
    let sample = Sample { took, sockets, streams, ..Sample::default() };
    // Records are read into a type of their own.
    let line = written_as(&Event::Sample(Box::new(sample)), &Event::Unknown);
    assert_eq!((&line["took"], &line["streams"][0]["unread"]), (&0.00025.into(), &7.into()));
    assert_eq!(line["streams"][0]["tcp"]["tcpi_rcv_wnd"], 0x0101_0101);
    assert!(line["sockets"]["retransmits"].is_u64() && line["sockets"]["pacing_bps"].is_u64());
    assert!(line.get("page_cache").is_none() && line["sockets"].get("counters").is_none(), "{line}");
}

#[test]
fn events_of_a_later_version_are_read_as_unknown() {
    let read = |text: &str| serde_json::from_str::<JobEvent<'_>>(text);
    assert_eq!(*read(r#"{"at":1,"event":"eclipse","of":{"the":["sun"]}}"#).unwrap().event, Event::Unknown);
    let closed = read(r#"{"at":1,"event":"closed","stream":0,"why":"done"}"#).unwrap();
    assert_eq!((closed.job, &*closed.event), (JobId::default(), &Event::Closed { stream: 0 }));
    assert!(read(r#"{"at":-1,"event":"verifying"}"#).is_err() && read(r#"{"at":1}"#).is_err());
}
