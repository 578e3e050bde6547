//! Progress on a terminal: a line for each active file and, for several files, one for all.

mod drawing;
mod eta;
mod line_text;
mod visibility;

use std::collections::BTreeMap;
use std::time::Duration;

use longhaul_core::event::{Event, JobId, JobTag, Observer, Progress};
use longhaul_core::units::{Bytes, Rate};
use longhaul_scope::record::schema::Side;
use parking_lot::Mutex;

use crate::stderr;
pub(crate) use drawing::Drawing;
use eta::EtaEstimate;
use line_text::shown_name;

/// Shows the progress of jobs: as changing lines on a terminal, and always in the log.
pub(crate) struct ProgressLines {
    visible: bool,
    /// Whether there are several jobs, so that messages must name theirs.
    several: bool,
}

/// The content to draw. The stderr thread draws it several times per second; jobs only modify it.
static PROGRESS_BOARD: Mutex<ProgressBoard> = Mutex::new(ProgressBoard {
    side: Side::Get,
    files: None,
    ended: 0,
    before: Bytes::ZERO,
    rows: BTreeMap::new(),
});

struct ProgressBoard {
    side: Side,
    /// Number of files, if known.
    files: Option<usize>,
    /// Number of ended files.
    ended: usize,
    /// Bytes of completed files.
    before: Bytes,
    /// The active files.
    rows: BTreeMap<JobId, Row>,
}

/// An active file.
#[derive(Clone, Default)]
struct Row {
    name: String,
    now: Progress,
    pace: EtaEstimate,
    verifying: bool,
}

impl ProgressLines {
    /// Begins a display of `files`, `None` if unknown.
    pub(crate) fn begin(visible: bool, side: Side, files: Option<usize>) -> Self {
        let mut board = PROGRESS_BOARD.lock();
        (board.side, board.files, board.ended, board.before) = (side, files, 0, Bytes::ZERO);
        Self { visible, several: files != Some(1) }
    }

    /// Changes a job's line, if lines are drawn.
    fn change(&self, job: &JobTag, change: impl FnOnce(&mut Row)) {
        if self.visible {
            change(PROGRESS_BOARD.lock().rows.entry(job.id()).or_default());
        }
    }

    /// Removes a job's line.
    fn remove(&self, job: &JobTag, complete: Bytes) {
        if self.visible {
            let mut board = PROGRESS_BOARD.lock();
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
                    (row.now.bytes.size, row.now.bytes.present) = (*size, *resumed);
                });
                stderr::redraw();
            }
            Event::Progress(now) => self.change(job, |row| {
                row.now = **now;
                let left = now.bytes.size.map(|size| size - now.bytes.present);
                row.pace.follow(at, now.bytes.received, left);
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

impl ProgressBoard {
    /// Formats the progress of all files; `None` for a single one.
    fn total(&self) -> Option<String> {
        if self.files == Some(1) {
            return None;
        }
        let present = self.rows.values().fold(self.before, |sum, row| sum + row.now.bytes.present);
        let rate = self.rows.values().fold(Rate::default(), |sum, row| sum + row.pace.rate());
        let begun = self.ended + self.rows.len();
        let sizes = || self.rows.values().map(|row| row.now.bytes.size);
        let known = sizes().try_fold(self.before, |sum, size| Some(sum + size?));
        let known = known.filter(|_| self.files == Some(begun));
        Some(line_text::total(self.files, self.ended, present, known, rate))
    }
}
