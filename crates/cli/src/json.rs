//! `--json`: one object a line. Bytes are integers, times seconds, rates bits per second.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use longhaul_core::event::{Event, Observer, Snapshot};
use longhaul_core::units::{Bytes, Rtt};
use serde_json::{Value, json};

use crate::exit;
use crate::summary::Summary;

/// Writes every event to stdout as it happens.
pub(crate) struct JsonLines;

impl Observer for JsonLines {
    fn on(&self, at: Duration, event: &Event) {
        if let Some(mut object) = object(event) {
            object["at"] = seconds(at).into();
            write(&object);
        }
    }
}

/// Returns the last line of a transfer; `code` is what the program then exits with.
pub(crate) fn end<T, E: Error>(result: &Result<T, E>, code: fn(&E) -> exit::Code) -> Value
where
    for<'a> Summary<'a>: From<&'a T>,
{
    match result {
        Ok(outcome) => done(&Summary::from(outcome)),
        Err(error) => json!({
            "event": "error",
            "message": error.to_string(),
            "exit_code": code(error).number(),
        }),
    }
}

fn done(summary: &Summary<'_>) -> Value {
    json!({
        "event": "done",
        "path": summary.path.to_string_lossy(),
        "bytes": summary.size.get(),
        "resumed": summary.resumed.get(),
        "seconds": seconds(summary.time),
        "goodput_bps": summary.goodput.as_bits_per_sec(),
        "streams": summary.streams,
        "retransmits": summary.retransmits,
        "out_of_order": summary.out_of_order,
        "limited_by": summary.finding.limit.name(),
        "advice": summary.finding.advice,
        "digest": summary.digest.map(ToString::to_string),
    })
}

fn object(event: &Event) -> Option<Value> {
    Some(match event {
        Event::Opened { path, size, resumed, writer } => json!({
            "event": "opened",
            "path": path.to_string_lossy(),
            "size": size.map(Bytes::get),
            "resumed": resumed.get(),
            "writer": writer,
        }),
        Event::Connected { stream, peer, rtt } => {
            json!({ "event": "connected", "stream": stream, "peer": peer.to_string(), "rtt": rtt.map(rtt_seconds) })
        }
        Event::Retrying { stream, reason, wait } => {
            json!({ "event": "retrying", "stream": stream, "reason": reason, "wait": seconds(*wait) })
        }
        Event::Refused { stream, reason, open } => {
            json!({ "event": "refused", "stream": stream, "reason": reason, "open": open })
        }
        Event::Warning(warning) => json!({ "event": "warning", "message": warning.to_string() }),
        Event::Progress(now) => progress(now),
        Event::Verifying => json!({ "event": "verifying" }),
        _ => return None,
    })
}

fn progress(now: &Snapshot) -> Value {
    json!({
        "event": "progress",
        "present": now.present.get(),
        "received": now.received.get(),
        "written": now.written.get(),
        "size": now.size.map(Bytes::get),
        "streams": now.sockets.open,
        "rtt": now.sockets.rtt.map(rtt_seconds),
        "data_rtt": now.sockets.data_rtt.map(rtt_seconds),
        "rwin": now.sockets.rwin.map(Bytes::get),
        "unread": now.sockets.unread.get(),
        "buffered": now.segments.bytes().get(),
        "app_buffer": now.segments.capacity().get(),
        "dirty": now.page_cache.map(|pages| pages.dirty.get()),
        "writeback": now.page_cache.map(|pages| pages.writeback.get()),
        "out_of_order": now.sockets.counters.out_of_order,
    })
}

fn rtt_seconds(rtt: Rtt) -> f64 {
    seconds(rtt.get())
}

/// Microseconds are as fine as anything here is measured.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}

/// Writes a line.
pub(crate) fn write(object: &Value) {
    // A reader that has gone away is no reason to end the transfer.
    let _ = writeln!(io::stdout().lock(), "{object}");
}
