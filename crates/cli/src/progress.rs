//! Progress on a terminal: a line for each file under way and, where there are several, one for all of them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::event::{Event, JobId, JobTag, Observer, Progress};
use longhaul_core::units::{Bytes, Rate};
use longhaul_scope::record::schema::Side;

use crate::line_queue::{self, Output};
use crate::stderr;

/// Shows how jobs go: on a terminal as lines that change, and everywhere in the log.
pub(crate) struct ProgressLines {
    visible: bool,
    /// There are several jobs, so that a message must name its own.
    several: bool,
}

/// What is to be drawn. The thread that owns stderr draws it several times a second: a job only changes it.
static BOARD: Mutex<Board> =
    Mutex::new(Board { side: Side::Get, files: None, ended: 0, before: Bytes::ZERO, rows: BTreeMap::new() });

struct Board {
    side: Side,
    /// How many files there are in all, where that is known.
    files: Option<usize>,
    /// How many of them have ended.
    ended: usize,
    /// Bytes of those that are complete.
    before: Bytes,
    /// The files under way.
    rows: BTreeMap<JobId, Row>,
}

/// A file under way.
#[derive(Clone, Default)]
struct Row {
    name: String,
    now: Progress,
    rate: Rate,
    pace: Pace,
    verifying: bool,
}

/// From this many columns on there is room for a bar, and for most of the name.
const WIDE: u16 = 120;

/// Characters of the name elsewhere.
const SHORT: usize = 6;

/// A rate that follows the last seconds.
#[derive(Clone, Copy, Default)]
struct Pace {
    at: Duration,
    received: Bytes,
    rate: f64,
}

/// How fast the shown rate follows: it forgets half within about this time.
const HALF_LIFE: f64 = 1.0;

impl ProgressLines {
    /// Begins to show so many `files`, `None` where that is not known.
    pub(crate) fn begin(visible: bool, side: Side, files: Option<usize>) -> Self {
        let mut board = lock(&BOARD);
        (board.side, board.files, board.ended, board.before) = (side, files, 0, Bytes::ZERO);
        Self { visible, several: files != Some(1) }
    }

    /// Changes a job's line, where lines are drawn.
    fn change(&self, job: &JobTag, change: impl FnOnce(&mut Row)) {
        if self.visible {
            change(lock(&BOARD).rows.entry(job.id()).or_default());
        }
    }

    /// Removes a job's line.
    fn remove(&self, job: &JobTag, complete: Bytes) {
        if self.visible {
            let mut board = lock(&BOARD);
            board.rows.remove(&job.id());
            board.ended += 1;
            board.before += complete;
            stderr::redraw();
        }
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

impl Observer for ProgressLines {
    fn on(&self, job: &JobTag, at: Duration, event: &Event) {
        let of = if self.several { format!("{}: ", job.url()) } else { String::new() };
        match event {
            Event::Opened { path, size, resumed, .. } => {
                self.change(job, |row| {
                    row.name = shown_name(path);
                    (row.now.size, row.now.present) = (*size, *resumed);
                });
                stderr::redraw();
            }
            Event::Progress(now) => self.change(job, |row| {
                row.now = **now;
                row.rate = row.pace.follow(at, now.received);
            }),
            Event::Retrying { stream, reason, wait } => {
                tracing::warn!("{of}stream {stream} tries again in {:.1} s: {reason}", wait.as_secs_f64());
            }
            Event::Refused { stream, reason, open } => {
                tracing::info!("{of}{open} streams go on without stream {stream}: {reason}");
            }
            Event::Warning(warning) => tracing::warn!("{of}{warning}"),
            Event::Connected { stream, peer, rtt } => {
                let rtt = rtt.map_or_else(String::new, |rtt| format!(", RTT {rtt}"));
                tracing::info!("{of}stream {stream} connected to {peer}{rtt}");
            }
            Event::Verifying => self.change(job, |row| row.verifying = true),
            Event::Done(done) => self.remove(job, done.bytes),
            Event::Error { .. } => self.remove(job, Bytes::ZERO),
            _ => {}
        }
    }
}

/// The lines on the terminal, as the thread that owns stderr has drawn them.
#[derive(Default)]
pub(crate) struct Drawing {
    drawn: Option<Drawn>,
}

struct Drawn {
    all: MultiProgress,
    bars: BTreeMap<JobId, Bar>,
    /// The line for all files together.
    total: Option<ProgressBar>,
}

/// The line of a file.
struct Bar {
    bar: ProgressBar,
    /// What it was laid out for: whether the size is known, and whether the terminal is narrow.
    layout: Option<(Option<Bytes>, bool)>,
}

impl Output for Drawing {
    fn write(&mut self, lines: &[u8], wrote: &dyn Fn()) -> io::Result<()> {
        let write = || line_queue::write_all(io::stderr(), lines, wrote);
        match &self.drawn {
            Some(drawn) => drawn.all.suspend(write),
            None => write(),
        }
    }

    fn draw(&mut self) -> bool {
        // Not while the lock is held: a terminal may stop.
        let (rows, side, total) = {
            let board = lock(&BOARD);
            (board.rows.clone(), board.side, board.total())
        };
        if rows.is_empty() {
            if let Some(drawn) = self.drawn.take() {
                drawn.clear();
            }
            return false;
        }
        let narrow = Term::stderr().size().1 < WIDE;
        self.drawn.get_or_insert_with(Drawn::new).show(&rows, side, total, narrow);
        true
    }
}

impl Drawn {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        Self { all, bars: BTreeMap::new(), total: None }
    }

    fn show(&mut self, rows: &BTreeMap<JobId, Row>, side: Side, total: Option<String>, narrow: bool) {
        let Self { all, bars, total: last } = self;
        bars.retain(|job, Bar { bar, .. }| {
            let stays = rows.contains_key(job);
            if !stays {
                bar.finish_and_clear();
                all.remove(bar);
            }
            stays
        });
        for (job, row) in rows {
            let bar = bars.entry(*job).or_insert_with(|| {
                let bar = ProgressBar::no_length().with_style(style("{prefix} {wide_msg}"));
                let bar = match last {
                    Some(last) => all.insert_before(last, bar),
                    None => all.add(bar),
                };
                Bar { bar, layout: None }
            });
            bar.show(row, side, narrow);
        }
        if let Some(text) = total {
            let line = || all.add(ProgressBar::no_length().with_style(style("{wide_msg}")));
            last.get_or_insert_with(line).set_message(text);
        }
    }

    fn clear(self) {
        let bars = self.bars.into_values().map(|Bar { bar, .. }| bar);
        bars.chain(self.total).for_each(|bar| bar.finish_and_clear());
    }
}

impl Bar {
    fn show(&mut self, row: &Row, side: Side, narrow: bool) {
        let (Self { bar, layout }, now) = (self, &row.now);
        if *layout != Some((now.size, narrow)) {
            *layout = Some((now.size, narrow));
            bar.set_style(match (now.size, narrow) {
                (None, _) => style("{spinner} {prefix} {wide_msg}"),
                (_, true) => style("{prefix} {percent:>3}% {wide_msg}"),
                (_, false) => style("{prefix} {bar:12} {percent:>3}% {wide_msg}"),
            });
            bar.set_prefix(short_name(&row.name, if narrow { SHORT } else { 24 }));
            if let Some(size) = now.size {
                bar.set_length(size.get());
            }
        }
        bar.set_position(now.present.get());
        let buffers = if side == Side::Put { flight(now) } else { buffers(now) };
        bar.set_message(match row.verifying {
            true => "verifying".to_owned(),
            false => line(now, row.rate, &buffers, narrow),
        });
    }
}

impl Board {
    /// Writes how all files together stand; nothing where there is only one.
    fn total(&self) -> Option<String> {
        let present = self.rows.values().fold(self.before, |sum, row| sum + row.now.present);
        let rate = self.rows.values().fold(Rate::default(), |sum, row| sum + row.rate);
        let files = match self.files {
            Some(1) => return None,
            Some(files) => format!("{} of {files} files done", self.ended),
            None => format!("{} files done", self.ended),
        };
        Some(format!("{files}  {present}  {rate}"))
    }
}

/// Locks, whatever happened to another thread that held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a file's name without what a terminal would obey.
fn shown_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Returns a name, cut to leave room for the rest.
fn short_name(name: &str, longest: usize) -> String {
    match name.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

/// Writes one moment: how much, how fast, how full the buffers are, how long still, and over what.
///
/// What does not fit is cut off at the end. Where it is narrow, per cents say how much.
fn line(now: &Progress, rate: Rate, buffers: &str, narrow: bool) -> String {
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
    let rtt = now.rtt.map_or_else(String::new, |rtt| format!("  RTT {rtt}"));
    let streams = if now.streams == 1 { "1 stream".into() } else { format!("{} streams", now.streams) };
    format!("{much}  {rate}  {buffers}{eta}  {streams}{rtt}")
}

/// Writes what a sender has on the way: the congestion window, and what had to be sent again.
fn flight(now: &Progress) -> String {
    let cwnd = now.cwnd.map_or_else(String::new, |cwnd| format!("cwnd {cwnd} "));
    format!("{cwnd}lost {}", now.retransmits)
}

/// Writes the fill of the three buffers: the socket's, the application's, and the file's pages on their way to the disk.
fn buffers(now: &Progress) -> String {
    // What may still come fits into the window that is announced.
    let socket =
        now.rwin.map_or_else(|| now.unread.to_string(), |rwin| percent(now.unread, now.unread + rwin));
    let app = percent(now.buffered, now.app_buffer);
    let cached = now.dirty.zip(now.writeback).map(|(dirty, writeback)| dirty + writeback);
    let cache = cached.map_or_else(String::new, |bytes| format!(" cache {bytes}"));
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
    use longhaul_core::units::Rtt;

    use super::*;

    #[test]
    fn says_how_much_how_fast_how_long_and_over_what() {
        let now = Progress {
            present: Bytes::gib(2),
            size: Some(Bytes::gib(8)),
            streams: 1,
            rtt: Some(Rtt::new(Duration::from_millis(200))),
            unread: Bytes::mib(30),
            rwin: Some(Bytes::mib(270)),
            buffered: Bytes::mib(8),
            app_buffer: Bytes::mib(64),
            dirty: Some(Bytes::gib(1)),
            writeback: Some(Bytes::gib(1)),
            ..Progress::default()
        };
        let text = line(&now, Rate::bits_per_sec(9_800_000_000), &buffers(&now), false);
        assert_eq!(
            text,
            "2 GiB of 8 GiB  9.80 Gbit/s  sock 10% app 12% cache 2 GiB  ETA 0:05  1 stream  RTT 200 ms"
        );
        let unknown = Progress { present: Bytes::gib(2), ..Progress::default() };
        for narrow in [false, true] {
            let text = line(&unknown, Rate::default(), &buffers(&unknown), narrow);
            assert_eq!(text, "2 GiB  0 bit/s  sock 0 B app 0%  0 streams");
        }
    }

    #[test]
    fn eighty_columns_show_the_three_buffers() {
        let odd = Bytes::new((1 << 40) - (1 << 26));
        let now = Progress {
            present: odd,
            size: Some(odd),
            unread: odd,
            rwin: Some(Bytes::ZERO),
            buffered: Bytes::mib(64),
            app_buffer: Bytes::mib(64),
            dirty: Some(odd),
            writeback: Some(Bytes::ZERO),
            ..Progress::default()
        };
        let text = line(&now, Rate::bits_per_sec(99_990_000_000), &buffers(&now), true);
        let cache = "cache 1023.9 GiB";
        let shown = short_name("a-long-name.tar.gz", SHORT).len() + " 100% ".len();
        let end = text.find(cache).unwrap() + cache.len();
        assert!(shown + end < 80 && text.contains("sock 100% app 100%"), "{text}");
    }

    #[test]
    fn several_files_have_a_line_for_all_of_them() {
        let row = |present: u64, rate: u64| Row {
            now: Progress { present: Bytes::mib(present), ..Progress::default() },
            rate: Rate::bits_per_sec(rate),
            ..Row::default()
        };
        let rows = [(JobId::new(4), row(1, 2_000_000)), (JobId::new(5), row(2, 3_000_000))].into();
        let mut board = Board { side: Side::Get, files: Some(10), ended: 3, before: Bytes::mib(4), rows };
        assert_eq!(board.total().unwrap(), "3 of 10 files done  7 MiB  5.00 Mbit/s");
        board.files = None;
        assert_eq!(board.total().unwrap(), "3 files done  7 MiB  5.00 Mbit/s");
        board.files = Some(1);
        assert_eq!(board.total(), None);
    }

    #[test]
    fn a_name_does_nothing_to_the_terminal() {
        assert_eq!(shown_name(Path::new("/d/a\x1b[2Jb\n")), "a?[2Jb?");
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
