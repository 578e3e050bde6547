//! Metrics in Prometheus's text format (version 0.0.4).

use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::{ApiError, ApiState, blocking};
use crate::error::QueueError;
use crate::queue::Queue;

/// Returns the metrics.
#[utoipa::path(get, path = "/metrics", tag = "agent", responses((status = 200, body = String, content_type = "text/plain")))]
pub(super) async fn metrics(State(api): State<ApiState>) -> Result<impl IntoResponse, ApiError> {
    let text = blocking(&api.queue, text).await?;
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

fn text(queue: &Queue) -> Result<String, QueueError> {
    let counts = queue.database(|database| database.count())?;
    let stats = queue.stats()?;
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let states: Vec<_> =
        counts.iter().map(|(state, count)| (format!("{{state=\"{state}\"}}"), *count)).collect();
    metric("longhaul_transfers", "gauge", "Transfers in the list by state.", &states);
    let plain = |value| [(String::new(), value)];
    metric("longhaul_active_transfers", "gauge", "Transfers that run.", &plain(stats.active));
    let goodput = stats.goodput_bps / 8;
    metric("longhaul_goodput_bytes_per_second", "gauge", "The rate of all transfers.", &plain(goodput));
    let moved = queue.runs.moved.load(Ordering::Relaxed);
    metric("longhaul_moved_bytes_total", "counter", "Bytes moved since the agent started.", &plain(moved));
    let version = [(format!("{{version=\"{}\"}}", stats.version), 1)];
    metric("longhaul_build_info", "gauge", "The program's version.", &version);
    Ok(text)
}
