//! From what happened to the lines of a record.

use std::time::Duration;

use longhaul_core::event::Event;
use longhaul_core::telemetry;
use longhaul_core::units::{Bytes, Rate, Rtt};

use super::schema::{HostPages, PageCache, Sample, Segments, Sockets, Stream, What};
use super::tcp_fields::TcpFields;

/// Returns the line for an event that was told `at`; `None` where a record has none for it.
pub(super) fn what(at: Duration, event: &Event) -> Option<What> {
    Some(match event {
        Event::Opened { path, size, resumed, writer } => What::Opened {
            path: path.to_string_lossy().into_owned(),
            size: size.map(Bytes::get),
            resumed: resumed.get(),
            writer: (*writer).to_owned(),
        },
        Event::Connected { stream, peer, rtt } => {
            What::Connected { stream: *stream, peer: peer.to_string(), rtt: rtt.map(rtt_seconds) }
        }
        Event::Closed { stream } => What::Closed { stream: *stream },
        Event::Retrying { stream, reason, wait } => {
            What::Retrying { stream: *stream, reason: reason.clone(), wait: seconds(*wait) }
        }
        Event::Refused { stream, reason, open } => {
            What::Refused { stream: *stream, reason: reason.clone(), open: *open }
        }
        Event::Replied { stream, method, target, status, sent, took } => What::Replied {
            stream: *stream,
            method: method.clone(),
            target: without_secrets(target),
            status: *status,
            sent: sent.get(),
            took: seconds(*took),
        },
        Event::Warning(warning) => What::Warning { message: warning.to_string() },
        Event::Verifying => What::Verifying,
        Event::Sample(sample) => What::Sample(Box::new(sample_line(at, sample))),
        _ => return None,
    })
}

/// Returns a time in seconds; microseconds are as fine as anything here is measured.
pub(super) fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

fn rtt_seconds(rtt: Rtt) -> f64 {
    seconds(rtt.get())
}

/// Leaves out what may hold a key: a query, and a login before a host (`http://ann:secret@host/f`, `ann:secret@host:80`).
fn without_secrets(target: &str) -> String {
    let (place, query) = match target.split_once('?') {
        Some((place, _)) => (place, "?..."),
        None => (target, ""),
    };
    let (scheme, rest) = place.find("://").map_or(("", place), |at| place.split_at(at + 3));
    let host = rest.find('/').unwrap_or(rest.len());
    let rest = rest[..host].rfind('@').map_or(rest, |login| &rest[login + 1..]);
    format!("{scheme}{rest}{query}")
}

fn sample_line(at: Duration, sample: &telemetry::Sample) -> Sample {
    let pages = |pages: telemetry::PageCache| PageCache {
        cached: pages.cached.get(),
        dirty: pages.dirty.get(),
        writeback: pages.writeback.get(),
        evicted: pages.evicted.get(),
        recently_evicted: pages.recently_evicted.get(),
    };
    let host = |pages: telemetry::HostPages| HostPages {
        dirty: pages.dirty.get(),
        writeback: pages.writeback.get(),
    };
    let segments = |segments: telemetry::Segments| Segments {
        in_use: segments.in_use,
        count: segments.count,
        size: segments.size.get(),
    };
    let stream = |stream: &telemetry::StreamSample| Stream {
        stream: stream.stream,
        unread: stream.unread.get(),
        tcp: stream.tcp.as_ref().map(TcpFields::from).unwrap_or_default(),
    };
    Sample {
        took: Some(seconds(at.saturating_sub(sample.began))),
        moved: sample.moved.get(),
        sockets: sockets(&sample.sockets),
        segments: sample.segments.map(segments),
        written: sample.written.map(Bytes::get),
        page_cache: sample.page_cache.map(pages),
        host_pages: sample.host_pages.map(host),
        streams: sample.streams.iter().map(stream).collect(),
    }
}

fn sockets(all: &telemetry::Sockets) -> Sockets {
    Sockets {
        open: all.open,
        unread: all.unread.get(),
        rwin: all.rwin.map(Bytes::get),
        cwnd: all.cwnd.map(Bytes::get),
        rtt: all.rtt.map(rtt_seconds),
        data_rtt: all.data_rtt.map(rtt_seconds),
        min_rtt: all.min_rtt.map(rtt_seconds),
        pacing_bps: all.pacing_rate.map(Rate::as_bits_per_sec),
        delivery_bps: all.delivery_rate.map(Rate::as_bits_per_sec),
        sacked: all.sacked,
        retransmits: all.counters.retransmits,
        out_of_order: all.counters.out_of_order,
        dsacks: all.counters.dsacks,
        data_segments: all.counters.data_segments,
        received: all.counters.received.get(),
        sent: all.counters.sent.get(),
        acked: all.counters.acked.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_recorded_without_its_secrets() {
        for (target, recorded) in [
            ("/f", "/f"),
            ("/f?key=secret", "/f?..."),
            ("/a@b/c", "/a@b/c"),
            ("/f?to=http://ann:secret@h/", "/f?..."),
            ("http://h:80/f", "http://h:80/f"),
            ("http://ann:secret@h/f", "http://h/f"),
            ("HTTP://ann:sec@ret@h", "HTTP://h"),
            ("http://ann:secret@h?key=secret", "http://h?..."),
            ("http://h/a@b", "http://h/a@b"),
            ("ann:secret@h:80", "h:80"),
            ("", ""),
            ("-", "-"),
        ] {
            assert_eq!(without_secrets(target), recorded, "{target}");
        }
    }

    #[test]
    fn what_waits_for_the_hosts_devices_is_recorded_where_it_is_known() {
        let pages = telemetry::HostPages { dirty: Bytes::new(8192), writeback: Bytes::new(4096) };
        let sample = telemetry::Sample { host_pages: Some(pages), ..Default::default() };
        let text = serde_json::to_string(&sample_line(Duration::ZERO, &sample)).unwrap();
        assert!(text.contains(r#""host_pages":{"dirty":8192,"writeback":4096}"#), "{text}");
        let text = serde_json::to_string(&sample_line(Duration::ZERO, &Default::default())).unwrap();
        assert!(!text.contains("host_pages"), "{text}");
    }

    #[test]
    fn says_how_long_before_its_time_a_sample_was_begun() {
        let sample = telemetry::Sample { began: Duration::from_millis(10), ..Default::default() };
        assert_eq!(sample_line(Duration::from_micros(10_250), &sample).took, Some(0.00025));
        assert_eq!(sample_line(Duration::ZERO, &sample).took, Some(0.0), "by another clock");
    }
}
