//! `/metrics`: what a server has counted, for Prometheus (text format 0.0.4).

use std::fmt::{Display, Write};
use std::time::Duration;

use longhaul_core::proto::http::ReplyHead;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::reply::Reply;
use crate::stats::connection_stats::{ConnectionStats, StatsSnapshot};

/// The only name at which metrics are served.
pub(crate) const NAME: &[u8] = b"metrics";

/// Answers a GET or HEAD for the metrics; no disk is waited for, nor any thread that may wait for
/// one.
pub(crate) async fn reply(stats: &ConnectionStats) -> Reply {
    let head = ReplyHead::new(200)
        .with("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        .with("Cache-Control", "no-cache");
    Reply::document(head, text(&stats.read_yielding().await))
}

fn text(reading: &StatsSnapshot) -> String {
    let mut page = Page(String::with_capacity(4096));
    let (totals, sockets) = (&reading.totals, reading.sockets());
    let codes = reading.replies.iter().map(|(code, count)| (format!("{{code=\"{code}\"}}"), *count));
    let help = "Replies by status code; /metrics does not count";
    page.family("counter", "longhaul_replies_total", help, codes);
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}").to_owned();
    page.family("gauge", "longhaul_build_info", "The version that runs, as a label", [(version, 1)]);
    let known = reading.streams.iter().filter_map(|stream| stream.tcp.as_ref());
    let unsent = known.filter_map(TcpInfo::tcpi_notsent_bytes).sum::<u64>();
    let count = |count: usize| Some(count as f64);
    let bytes = |bytes: Bytes| Some(bytes.get() as f64);
    let busy = |time: Duration| Some(time.as_secs_f64());
    let seconds = |time: Option<Rtt>| time.map(|rtt| rtt.get().as_secs_f64());
    let rate = |rate: Option<Rate>| Some(rate.map_or(0, Rate::as_bytes_per_sec) as f64);
    // A gauge that nothing is known of stands without a value. Names of what only grows end in
    // `_total`.
    for (name, help, value) in [
        (
            "connections_total",
            "Connections accepted; those to a metrics address of its own do not count",
            count(reading.arrived),
        ),
        (
            "sent_bytes_total",
            "Bytes that peers have acknowledged, heads and encryption included, /metrics not",
            bytes(totals.acked),
        ),
        ("received_bytes_total", "Bytes of files that clients have put here", bytes(reading.received)),
        ("retransmits_total", "Segments sent again", Some(totals.retransmits as f64)),
        ("busy_seconds_total", "Time with data to send, summed over connections", busy(totals.times.busy)),
        (
            "rwnd_limited_seconds_total",
            "Part of the busy time in which the peer's receive window was the limit",
            busy(totals.times.window_limited),
        ),
        (
            "sndbuf_limited_seconds_total",
            "Part of the busy time in which the send buffer was the limit",
            busy(totals.times.buffer_limited),
        ),
        ("connections", "Connections open, idle ones included", count(reading.open)),
        (
            "sending_connections",
            "Connections with an upload, or a reply that is being sent or not yet acknowledged",
            count(reading.streams.len()),
        ),
        ("uploads", "Files being received", count(reading.written.uploads)),
        (
            "application_buffer_bytes",
            "Bytes between sockets and files, summed over uploads",
            bytes(reading.written.segments.bytes()),
        ),
        (
            "rtt_seconds",
            "Smoothed round-trip time, the mean of sending connections",
            seconds(sockets.times.rtt),
        ),
        (
            "min_rtt_seconds",
            "Least round-trip time of any sending connection",
            seconds(sockets.times.min_rtt),
        ),
        (
            "cwnd_bytes",
            "Congestion windows of sending connections, summed",
            bytes(sockets.windows.cwnd.unwrap_or_default()),
        ),
        (
            "unsent_bytes",
            "Bytes in send buffers not yet sent, summed over sending connections",
            Some(unsent as f64),
        ),
        (
            "pacing_rate_bytes_per_second",
            "Pacing rates of sending connections, summed",
            rate(sockets.rates.pacing),
        ),
        (
            "delivery_rate_bytes_per_second",
            "Rates at which peers were last seen to receive, summed over sending connections",
            rate(sockets.rates.delivery),
        ),
    ] {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        page.family(kind, &format!("longhaul_{name}"), help, value.map(|value| (String::new(), value)));
    }
    page.0
}

struct Page(String);

impl Page {
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
