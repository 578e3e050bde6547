//! Progress on a terminal: a line for each file under way and, where there are several, one for all of them.

mod drawing;
mod eta;
mod line;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::event::{Event, JobId, JobTag, Observer, Progress};
use longhaul_core::units::{Bytes, Rate};
use longhaul_scope::record::schema::Side;

use crate::stderr;
pub(crate) use drawing::Drawing;
use eta::Pace;
use line::shown_name;

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
    pace: Pace,
    verifying: bool,
}

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
                let left = now.size.map(|size| size - now.present);
                row.pace.follow(at, now.received, left);
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

impl Board {
    /// Writes how all files together stand; nothing where there is only one.
    fn total(&self) -> Option<String> {
        if self.files == Some(1) {
            return None;
        }
        let present = self.rows.values().fold(self.before, |sum, row| sum + row.now.present);
        let rate = self.rows.values().fold(Rate::default(), |sum, row| sum + row.pace.rate());
        let begun = self.ended + self.rows.len();
        let sizes = || self.rows.values().map(|row| row.now.size);
        let known = sizes().try_fold(self.before, |sum, size| Some(sum + size?));
        let known = known.filter(|_| self.files == Some(begun));
        Some(line::total(self.files, self.ended, present, known, rate))
    }
}

/// Locks, whatever happened to another thread that held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
