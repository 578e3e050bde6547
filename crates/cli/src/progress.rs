//! The progress line.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::event::{Event, Observer, Snapshot};
use longhaul_core::units::{Bytes, Rate};

/// Draws a line on stderr where that is a terminal, and nothing elsewhere.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    pace: Mutex<Pace>,
}

/// A rate that follows the last seconds.
#[derive(Default)]
struct Pace {
    at: Duration,
    received: Bytes,
    rate: f64,
}

/// How fast the shown rate follows: it forgets half within about this time.
const HALF_LIFE: f64 = 1.0;

impl ProgressLine {
    pub(crate) fn new(visible: bool) -> Self {
        let target =
            if visible { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar =
            ProgressBar::with_draw_target(None, target).with_style(style("{spinner} {prefix} {wide_msg}"));
        Self { bar, pace: Mutex::default() }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn show(&self, at: Duration, now: &Snapshot) {
        let rate = self.pace.lock().unwrap_or_else(PoisonError::into_inner).follow(at, now.received);
        self.bar.set_position(now.present.get());
        self.bar.set_message(line(now, rate));
    }
}

impl Pace {
    fn follow(&mut self, at: Duration, received: Bytes) -> Rate {
        let time = at.saturating_sub(self.at);
        if time > Duration::ZERO {
            let latest = Rate::over(received - self.received, time).as_bits_per_sec() as f64;
            let keep = 0.5f64.powf(time.as_secs_f64() / HALF_LIFE);
            self.rate = if self.at.is_zero() { latest } else { keep * self.rate + (1.0 - keep) * latest };
            (self.at, self.received) = (at, received);
        }
        Rate::bits_per_sec(self.rate as u64)
    }
}

impl Observer for ProgressLine {
    fn on(&self, at: Duration, event: &Event) {
        match event {
            Event::Opened { path, size, resumed, .. } => {
                self.bar.set_prefix(short_name(path));
                if let Some(size) = size {
                    self.bar.set_length(size.get());
                    self.bar.set_style(style("{prefix} {bar:12} {percent:>3}% {wide_msg}"));
                }
                self.bar.set_position(resumed.get());
            }
            Event::Progress(now) => self.show(at, now),
            Event::Retrying { stream, reason, wait } => {
                self.bar.suspend(|| {
                    tracing::warn!("stream {stream} tries again in {:.1} s: {reason}", wait.as_secs_f64())
                });
            }
            Event::Warning(warning) => self.bar.suspend(|| tracing::warn!("{warning}")),
            Event::Connected { stream, peer, rtt } => {
                self.bar.suspend(|| {
                    tracing::info!(
                        "stream {stream} connected to {peer}{}",
                        rtt.map_or_else(String::new, |rtt| format!(", RTT {rtt}"))
                    )
                });
            }
            Event::Verifying => self.bar.set_message("verifying"),
            _ => {}
        }
    }
}

/// Returns the file's name as far as it leaves room for the rest, and does nothing to the terminal.
fn short_name(path: &Path) -> String {
    const LONGEST: usize = 24;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let shown: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match shown.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown,
    }
}

/// Writes one moment: how much, how fast, how long still, over what, and how full the three buffers are.
fn line(now: &Snapshot, rate: Rate) -> String {
    let of = now.size.map_or_else(String::new, |size| format!(" of {size}"));
    let left = now
        .size
        .map(|size| rate.time_for(size - now.present))
        .filter(|left| *left < Duration::from_secs(360_000));
    let eta = left.map_or_else(String::new, |left| format!("  ETA {}", clock(left)));
    let rtt = now.sockets.rtt.map_or_else(String::new, |rtt| format!("  RTT {rtt}"));
    let streams =
        if now.sockets.open == 1 { "1 stream".into() } else { format!("{} streams", now.sockets.open) };
    format!("{}{of}  {rate}{eta}  {streams}{rtt}  {}", now.present, buffers(now))
}

/// Writes the fill of the three buffers: the socket's, the application's, and the file's pages on their way to the disk.
fn buffers(now: &Snapshot) -> String {
    // What may still come fits into the window that is announced.
    let socket = now.sockets.rwin.map_or_else(
        || now.sockets.unread.to_string(),
        |rwin| percent(now.sockets.unread, now.sockets.unread + rwin),
    );
    let app = percent(now.segments.bytes(), now.segments.capacity());
    let cache =
        now.page_cache.map_or_else(String::new, |pages| format!("  cache {}", pages.dirty + pages.writeback));
    format!("socket {socket}  app {app}{cache}")
}

fn percent(part: Bytes, whole: Bytes) -> String {
    let percent = part.get().saturating_mul(100).checked_div(whole.get()).unwrap_or(0);
    format!("{percent} %")
}

fn clock(time: Duration) -> String {
    let (minutes, seconds) = (time.as_secs() / 60, time.as_secs() % 60);
    if minutes < 60 {
        format!("{minutes}:{seconds:02}")
    } else {
        format!("{}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use longhaul_core::telemetry::{PageCache, Segments, Sockets};
    use longhaul_core::units::Rtt;

    use super::*;

    #[test]
    fn says_how_much_how_fast_how_long_and_over_what() {
        let now = Snapshot {
            present: Bytes::gib(2),
            size: Some(Bytes::gib(8)),
            sockets: Sockets {
                open: 1,
                rtt: Some(Rtt::new(Duration::from_millis(200))),
                unread: Bytes::mib(30),
                rwin: Some(Bytes::mib(270)),
                ..Sockets::default()
            },
            segments: Segments { in_use: 2, count: 16, size: Bytes::mib(4) },
            page_cache: Some(PageCache {
                dirty: Bytes::gib(1),
                writeback: Bytes::gib(1),
                ..PageCache::default()
            }),
            ..Snapshot::default()
        };
        let text = line(&now, Rate::bits_per_sec(9_800_000_000));
        assert_eq!(
            text,
            "2 GiB of 8 GiB  9.80 Gbit/s  ETA 0:05  1 stream  RTT 200 ms  socket 10 %  app 12 %  cache 2 GiB"
        );
        let unknown = Snapshot { present: Bytes::gib(2), ..Snapshot::default() };
        assert_eq!(line(&unknown, Rate::default()), "2 GiB  0 bit/s  0 streams  socket 0 B  app 0 %");
    }

    #[test]
    fn the_rate_follows() {
        let mut pace = Pace::default();
        pace.follow(Duration::from_secs(1), Bytes::mib(1));
        for second in 2..20 {
            pace.follow(Duration::from_secs(second), Bytes::mib(1) + Bytes::mib(10) * (second - 1));
        }
        assert!((pace.rate / 8.0 / 1_048_576.0 - 10.0).abs() < 0.1);
    }
}
