//! `/metrics`: what a server has counted, for Prometheus (text format 0.0.4).

use std::fmt::{Display, Write};

use longhaul_core::proto::http::ReplyHead;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::reply::Reply;
use crate::stats::connection_stats::{ConnectionStats, StatsSnapshot};

/// The only name at which metrics are served.
pub(crate) const NAME: &[u8] = b"metrics";

/// Answers a GET or HEAD for the metrics; no disk is waited for, nor any thread that may wait for one.
pub(crate) async fn reply(stats: &ConnectionStats) -> Reply {
    let head = ReplyHead::new(200)
        .with("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        .with("Cache-Control", "no-cache");
    Reply::document(head, text(&stats.read_yielding().await))
}

fn text(reading: &StatsSnapshot) -> String {
    let mut page = Page(String::with_capacity(4096));
    totals(&mut page, reading);
    present(&mut page, reading);
    page.0
}

/// Writes what only grows.
fn totals(page: &mut Page, reading: &StatsSnapshot) {
    let totals = &reading.totals;
    page.counter(
        "longhaul_connections_total",
        "Connections accepted; those to a metrics address of its own do not count",
        reading.arrived,
    );
    let codes = reading.replies.iter().map(|(code, count)| (format!("{{code=\"{code}\"}}"), *count));
    page.family(
        "counter",
        "longhaul_replies_total",
        "Replies by status code; /metrics does not count",
        codes,
    );
    page.counter(
        "longhaul_sent_bytes_total",
        "Bytes that peers have acknowledged, heads and encryption included, /metrics not",
        totals.counters.acked.get(),
    );
    page.counter(
        "longhaul_received_bytes_total",
        "Bytes of files that clients have put here",
        reading.received.get(),
    );
    page.counter("longhaul_retransmits_total", "Segments sent again", totals.counters.retransmits);
    for (name, help, time) in [
        ("longhaul_busy_seconds_total", "Time with data to send, summed over connections", totals.busy),
        (
            "longhaul_rwnd_limited_seconds_total",
            "Part of the busy time in which the peer's receive window was the limit",
            totals.rwnd_limited,
        ),
        (
            "longhaul_sndbuf_limited_seconds_total",
            "Part of the busy time in which the send buffer was the limit",
            totals.sndbuf_limited,
        ),
    ] {
        page.counter(name, help, time.as_secs_f64());
    }
}

/// Writes how everything stands now.
fn present(page: &mut Page, reading: &StatsSnapshot) {
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}").to_owned();
    page.family("gauge", "longhaul_build_info", "The version that runs, as a label", [(version, 1)]);
    page.gauge("longhaul_connections", "Connections open, idle ones included", Some(reading.open));
    page.gauge(
        "longhaul_sending_connections",
        "Connections with an upload, or a reply that is being sent or not yet acknowledged",
        Some(reading.streams.len()),
    );
    page.gauge("longhaul_uploads", "Files being received", Some(reading.written.uploads));
    page.gauge(
        "longhaul_application_buffer_bytes",
        "Bytes between sockets and files, summed over uploads",
        Some(reading.written.segments.bytes().get()),
    );
    let sockets = reading.sockets();
    let seconds = |time: Option<Rtt>| time.map(|rtt| rtt.get().as_secs_f64());
    page.gauge(
        "longhaul_rtt_seconds",
        "Smoothed round-trip time, the mean of sending connections",
        seconds(sockets.rtt),
    );
    page.gauge(
        "longhaul_min_rtt_seconds",
        "Least round-trip time of any sending connection",
        seconds(sockets.min_rtt),
    );
    let known = reading.streams.iter().filter_map(|stream| stream.tcp.as_ref());
    let unsent = known.filter_map(TcpInfo::tcpi_notsent_bytes).sum::<u64>();
    let cwnd = sockets.cwnd.map_or(0, Bytes::get);
    page.gauge("longhaul_cwnd_bytes", "Congestion windows of sending connections, summed", Some(cwnd));
    page.gauge(
        "longhaul_unsent_bytes",
        "Bytes in send buffers not yet sent, summed over sending connections",
        Some(unsent),
    );
    for (name, help, rate) in [
        (
            "longhaul_pacing_rate_bytes_per_second",
            "Pacing rates of sending connections, summed",
            sockets.pacing_rate,
        ),
        (
            "longhaul_delivery_rate_bytes_per_second",
            "Rates at which peers were last seen to receive, summed over sending connections",
            sockets.delivery_rate,
        ),
    ] {
        page.gauge(name, help, Some(rate.map_or(0, Rate::as_bytes_per_sec)));
    }
}

struct Page(String);

impl Page {
    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family("counter", name, help, [(String::new(), value)]);
    }

    /// Writes a gauge; one that nothing is known of stands without a value.
    fn gauge(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        self.family("gauge", name, help, value.map(|value| (String::new(), value)));
    }

    /// Writes a metric with the values of its sets of labels.
    fn family<V: Display>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (String, V)>,
    ) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}
