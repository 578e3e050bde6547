//! The progress line.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::event::{Event, Observer, Snapshot};
use longhaul_core::units::{Bytes, Rate};
use longhaul_scope::record::schema::Side;

/// Draws a line on stderr where that is a terminal, and nothing elsewhere.
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    pace: Mutex<Pace>,
    side: Side,
    /// The terminal has no room for everything.
    narrow: AtomicBool,
}

/// The line that is drawn now; nothing else that goes to stderr may end up in it.
static DRAWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Writes to stderr, above the progress line where one is drawn.
pub(crate) struct AboveLine;

/// From this many columns on there is room for a bar, and for most of the name.
const WIDE: u16 = 120;

/// Characters of the name elsewhere.
const SHORT: usize = 6;

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
    pub(crate) fn new(visible: bool, side: Side) -> Self {
        let target =
            if visible { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar =
            ProgressBar::with_draw_target(None, target).with_style(style("{spinner} {prefix} {wide_msg}"));
        *lock(&DRAWN) = visible.then(|| bar.clone());
        Self { bar, pace: Mutex::default(), side, narrow: AtomicBool::new(false) }
    }

    /// Removes the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
        *lock(&DRAWN) = None;
    }

    fn open(&self, path: &Path, size: Option<Bytes>, resumed: Bytes) {
        let narrow = Term::stderr().size().1 < WIDE;
        self.narrow.store(narrow, Ordering::Relaxed);
        self.bar.set_prefix(short_name(path, if narrow { SHORT } else { 24 }));
        if let Some(size) = size {
            self.bar.set_length(size.get());
            let bar = if narrow { "" } else { "{bar:12} " };
            self.bar.set_style(style(&format!("{{prefix}} {bar}{{percent:>3}}% {{wide_msg}}")));
        }
        self.bar.set_position(resumed.get());
    }

    fn show(&self, at: Duration, now: &Snapshot) {
        let rate = lock(&self.pace).follow(at, now.received);
        self.bar.set_position(now.present.get());
        let buffers = if self.side == Side::Put { flight(now) } else { buffers(now) };
        self.bar.set_message(line(now, rate, &buffers, self.narrow.load(Ordering::Relaxed)));
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
            Event::Opened { path, size, resumed, .. } => self.open(path, *size, *resumed),
            Event::Progress(now) => self.show(at, now),
            Event::Retrying { stream, reason, wait } => {
                tracing::warn!("stream {stream} tries again in {:.1} s: {reason}", wait.as_secs_f64());
            }
            Event::Refused { stream, reason, open } => {
                tracing::info!("{open} streams go on without stream {stream}: {reason}");
            }
            Event::Warning(warning) => tracing::warn!("{warning}"),
            Event::Connected { stream, peer, rtt } => {
                let rtt = rtt.map_or_else(String::new, |rtt| format!(", RTT {rtt}"));
                tracing::info!("stream {stream} connected to {peer}{rtt}");
            }
            Event::Verifying => self.bar.set_message("verifying"),
            _ => {}
        }
    }
}

impl Write for AboveLine {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let drawn = lock(&DRAWN).clone();
        match drawn {
            Some(bar) => bar.suspend(|| io::stderr().write(text)),
            None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Locks, whatever happened to another thread that held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the file's name, cut to leave room for the rest, and does nothing to the terminal.
fn short_name(path: &Path, longest: usize) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let shown: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match shown.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown,
    }
}

/// Writes one moment: how much, how fast, how full the buffers are, how long still, and over what.
///
/// What does not fit is cut off at the end. Where it is narrow, per cents say how much.
fn line(now: &Snapshot, rate: Rate, buffers: &str, narrow: bool) -> String {
    let much = match now.size {
        Some(size) if narrow => format!("of {size}"),
        Some(size) => format!("{} of {size}", now.present),
        None => now.present.to_string(),
    };
    let left = now
        .size
        .map(|size| rate.time_for(size - now.present))
        .filter(|left| *left < Duration::from_secs(360_000));
    let eta = left.map_or_else(String::new, |left| format!("  ETA {}", clock(left)));
    let rtt = now.sockets.rtt.map_or_else(String::new, |rtt| format!("  RTT {rtt}"));
    let streams =
        if now.sockets.open == 1 { "1 stream".into() } else { format!("{} streams", now.sockets.open) };
    format!("{much}  {rate}  {buffers}{eta}  {streams}{rtt}")
}

/// Writes what a sender has on the way: the congestion window, and what had to be sent again.
fn flight(now: &Snapshot) -> String {
    let cwnd = now.sockets.cwnd.map_or_else(String::new, |cwnd| format!("cwnd {cwnd} "));
    format!("{cwnd}lost {}", now.sockets.counters.retransmits)
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
        now.page_cache.map_or_else(String::new, |pages| format!(" cache {}", pages.dirty + pages.writeback));
    format!("sock {socket} app {app}{cache}")
}

fn percent(part: Bytes, whole: Bytes) -> String {
    let percent = part.get().saturating_mul(100).checked_div(whole.get()).unwrap_or(0);
    format!("{percent}%")
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
        let text = line(&now, Rate::bits_per_sec(9_800_000_000), &buffers(&now), false);
        assert_eq!(
            text,
            "2 GiB of 8 GiB  9.80 Gbit/s  sock 10% app 12% cache 2 GiB  ETA 0:05  1 stream  RTT 200 ms"
        );
        let unknown = Snapshot { present: Bytes::gib(2), ..Snapshot::default() };
        for narrow in [false, true] {
            let text = line(&unknown, Rate::default(), &buffers(&unknown), narrow);
            assert_eq!(text, "2 GiB  0 bit/s  sock 0 B app 0%  0 streams");
        }
    }

    #[test]
    fn eighty_columns_show_the_three_buffers() {
        let odd = Bytes::new((1 << 40) - (1 << 26));
        let now = Snapshot {
            present: odd,
            size: Some(odd),
            sockets: Sockets { unread: odd, rwin: Some(Bytes::ZERO), ..Sockets::default() },
            segments: Segments { in_use: 16, count: 16, size: Bytes::mib(4) },
            page_cache: Some(PageCache { dirty: odd, ..PageCache::default() }),
            ..Snapshot::default()
        };
        let text = line(&now, Rate::bits_per_sec(99_990_000_000), &buffers(&now), true);
        let cache = "cache 1023.9 GiB";
        let shown = short_name(Path::new("a-long-name.tar.gz"), SHORT).len() + " 100% ".len();
        let end = text.find(cache).unwrap() + cache.len();
        assert!(shown + end < 80 && text.contains("sock 100% app 100%"), "{text}");
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
