//! The progress lines on the terminal, drawn by the stderr thread.

use std::collections::BTreeMap;
use std::io;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::event::JobId;
use longhaul_core::units::Bytes;
use longhaul_scope::record::schema::Side;

use super::line_text::{line, short_name};
use super::{PROGRESS_BOARD, Row};
use crate::line_queue::{self, Output};

/// Minimum columns for a long bar and most of the name.
const WIDE: u16 = 120;
/// Characters of the name, and columns of the bar, on narrower terminals.
pub(super) const SHORT_NAME: usize = 6;
pub(super) const SHORT_BAR: usize = 6;
/// Maximum of files with their own line; fewer on a low terminal.
const MAX_ROWS: usize = 12;

/// The content drawn below the lines of the log.
#[derive(Default)]
pub(crate) struct Drawing {
    drawn: Option<DrawnBars>,
}

struct DrawnBars {
    all: MultiProgress,
    bars: BTreeMap<JobId, Bar>,
    /// The line for all files.
    total: Option<ProgressBar>,
}

/// The line of a file.
struct Bar {
    bar: ProgressBar,
    /// Inputs of the current layout: the size if known, and whether the terminal is narrow.
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
        let (height, width) = Term::stderr().size();
        let most = usize::from(height.saturating_sub(2)).clamp(1, MAX_ROWS);
        // Formatted after the lock is released: writing to a terminal may block.
        let (mut rows, side, total) = {
            let board = PROGRESS_BOARD.lock();
            (board.rows.clone(), board.side, board.total())
        };
        if rows.is_empty() {
            if let Some(drawn) = self.drawn.take() {
                drawn.clear();
            }
            return false;
        }
        let hidden = rows.len().saturating_sub(most);
        // Only the oldest files are shown: they end first.
        while rows.len() > most {
            rows.pop_last();
        }
        let more = if hidden > 0 { format!("  ({hidden} more under way)") } else { String::new() };
        let total = total.map(|total| total + &more);
        self.drawn.get_or_insert_with(DrawnBars::new).show(&rows, side, total, width < WIDE);
        true
    }
}

impl DrawnBars {
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
            let line = || all.add(ProgressBar::no_length().with_style(style("{wide_msg:.bold}")));
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
        if *layout != Some((now.bytes.size, narrow)) {
            *layout = Some((now.bytes.size, narrow));
            bar.set_style(match (now.bytes.size, narrow) {
                (None, _) => style("{spinner} {prefix} {wide_msg}"),
                (_, true) => {
                    style(&format!("{{prefix}} {{bar:{SHORT_BAR}.green}} {{percent:>3}}% {{wide_msg}}"))
                }
                (_, false) => style("{prefix} {bar:24.green} {percent:>3}% {wide_msg}"),
            });
            bar.set_prefix(short_name(&row.name, if narrow { SHORT_NAME } else { 24 }));
            if let Some(size) = now.bytes.size {
                bar.set_length(size.get());
            }
        }
        bar.set_position(now.bytes.present.get());
        bar.set_message(match row.verifying {
            true => "verifying".to_owned(),
            false => line(now, &row.pace, side, narrow),
        });
    }
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    // Eighth blocks, if the terminal supports them.
    if shows_unicode() {
        style.progress_chars("█▉▊▋▌▍▎▏ ")
    } else {
        style.progress_chars("=> ").tick_chars("-\\|/ ")
    }
}

/// Returns whether the locale's encoding is UTF-8.
fn shows_unicode() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let language = variable("LC_ALL").or_else(|| variable("LC_CTYPE")).or_else(|| variable("LANG"));
    let language = language.unwrap_or_default().to_ascii_lowercase();
    language.contains("utf-8") || language.contains("utf8")
}
