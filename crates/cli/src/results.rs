//! The results of several files as a table, printed at the end.

use std::time::{Duration, Instant};

use console::{Alignment, measure_text_width, pad_str, truncate_str};
use longhaul_core::event::Done;
use longhaul_core::units::{Bytes, Rate};

/// Maximum rows of the table; further files are counted.
const MAX_ROWS: usize = 100;
/// Maximum columns of a name.
const MAX_NAME_WIDTH: usize = 40;

/// The results of files, for the end of a command.
#[derive(Debug)]
pub(crate) struct Results {
    began: Instant,
    rows: Vec<[String; 5]>,
    /// Complete files without a row.
    hidden: usize,
    complete: usize,
    unchanged: usize,
    failed: usize,
    bytes: Bytes,
    /// Bytes that this run has moved.
    moved: Bytes,
}

impl Results {
    pub(crate) fn begin() -> Self {
        Self {
            began: Instant::now(),
            rows: Vec::new(),
            hidden: 0,
            complete: 0,
            unchanged: 0,
            failed: 0,
            bytes: Bytes::ZERO,
            moved: Bytes::ZERO,
        }
    }

    /// Adds a complete file.
    pub(crate) fn complete(&mut self, name: &str, done: &Done) {
        self.complete += 1;
        self.bytes += done.bytes;
        self.moved += done.bytes - done.resumed;
        if self.rows.len() == MAX_ROWS {
            self.hidden += 1;
            return;
        }
        let time = format!("{:.1} s", done.time.as_secs_f64());
        let limit = done.finding.limit.to_string();
        self.rows.push([shown(name), done.bytes.to_string(), time, done.goodput.to_string(), limit]);
    }

    /// Adds a file that was already present.
    pub(crate) fn unchanged(&mut self) {
        self.unchanged += 1;
    }

    /// Adds a failed file; its error was printed earlier.
    pub(crate) fn failed(&mut self, name: &str) {
        self.failed += 1;
        if self.rows.len() < MAX_ROWS {
            self.rows.push([shown(name), "failed".into(), String::new(), String::new(), String::new()]);
        }
    }

    /// Formats the table; empty without files.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines_after(self.began.elapsed())
    }

    /// Formats the totals of several files, or that all are unchanged; `None` for one file that was
    /// transferred.
    pub(crate) fn total(&self) -> Option<String> {
        self.total_after(self.began.elapsed())
    }

    fn total_after(&self, time: Duration) -> Option<String> {
        if self.complete + self.failed == 0 {
            return self.all_unchanged();
        }
        if self.complete + self.failed + self.unchanged < 2 {
            return None;
        }
        let [files, size, seconds, rate, _] = self.total_row(time);
        Some(format!("{files}: {size} in {seconds}, {rate}"))
    }

    /// Formats the number of files if nothing was transferred; `None` without files.
    fn all_unchanged(&self) -> Option<String> {
        match self.unchanged {
            0 => None,
            1 => Some("1 file unchanged".to_owned()),
            files => Some(format!("{files} files unchanged")),
        }
    }

    fn total_row(&self, time: Duration) -> [String; 5] {
        let mut parts = vec![format!("{} file{}", self.complete, if self.complete == 1 { "" } else { "s" })];
        if self.unchanged > 0 {
            parts.push(format!("{} unchanged", self.unchanged));
        }
        if self.failed > 0 {
            parts.push(format!("{} failed", self.failed));
        }
        let rate = Rate::over(self.moved, time).to_string();
        let seconds = format!("{:.1} s", time.as_secs_f64());
        [parts.join(", "), self.bytes.to_string(), seconds, rate, String::new()]
    }

    fn lines_after(&self, time: Duration) -> Vec<String> {
        if self.complete + self.failed == 0 {
            return self.all_unchanged().into_iter().collect();
        }
        let total = self.total_row(time);
        let head = ["file", "size", "time", "rate", "limited by"].map(str::to_owned);
        let rows = || std::iter::once(&head).chain(&self.rows).chain(std::iter::once(&total));
        let width = |column: usize| rows().map(|row| measure_text_width(&row[column])).max().unwrap_or(0);
        let widths = [0, 1, 2, 3, 4].map(width);
        let line = |row: &[String; 5]| {
            let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
                let alignment = if matches!(column, 1..=3) { Alignment::Right } else { Alignment::Left };
                pad_str(cell, width, alignment, None).into_owned()
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let mut lines = vec![line(&head)];
        lines.extend(self.rows.iter().map(line));
        if self.hidden > 0 {
            lines.push(format!("... and {} more", self.hidden));
        }
        lines.push(line(&total));
        lines
    }
}

/// Returns a name for display: truncated, without control characters.
fn shown(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    truncate_str(&name, MAX_NAME_WIDTH, "..").into_owned()
}

#[cfg(test)]
mod tests {
    use longhaul_core::advice::{Finding, LimitedBy};

    use super::*;

    fn done(mib: u64) -> Done {
        Done {
            bytes: Bytes::mib(mib),
            time: Duration::from_secs(2),
            goodput: Rate::over(Bytes::mib(mib), Duration::from_secs(2)),
            finding: Finding { limit: LimitedBy::Path, ..Finding::default() },
            ..Done::default()
        }
    }

    #[test]
    fn table_has_a_row_for_each_file_and_one_for_all() {
        let mut results = Results::begin();
        assert!(results.lines_after(Duration::ZERO).is_empty());
        assert_eq!(results.total_after(Duration::ZERO), None);
        results.unchanged();
        assert_eq!(results.total_after(Duration::ZERO).as_deref(), Some("1 file unchanged"));
        results.unchanged();
        assert_eq!(results.lines_after(Duration::ZERO), ["2 files unchanged"]);
        let mut results = Results::begin();
        results.complete("a.iso", &done(10));
        assert_eq!(results.total_after(Duration::ZERO), None, "one file has a line of its own");
        results.complete("a-much-longer-name\x1b[2J.tar.gz", &done(200));
        results.failed("gone");
        results.unchanged();
        let expected = [
            "file                               size   time         rate  limited by",
            "a.iso                            10 MiB  2.0 s  41.9 Mbit/s  path",
            "a-much-longer-name?[2J.tar.gz   200 MiB  2.0 s   839 Mbit/s  path",
            "gone                             failed",
            "2 files, 1 unchanged, 1 failed  210 MiB  4.0 s   440 Mbit/s",
        ];
        let total = "2 files, 1 unchanged, 1 failed: 210 MiB in 4.0 s, 440 Mbit/s";
        assert_eq!(results.total_after(Duration::from_secs(4)).as_deref(), Some(total));
        assert_eq!(results.lines_after(Duration::from_secs(4)), expected);
    }

    #[test]
    fn long_list_is_counted() {
        let mut results = Results::begin();
        (0..250).for_each(|number| results.complete(&number.to_string(), &done(1)));
        let lines = results.lines_after(Duration::from_secs(1));
        assert_eq!(lines.len(), 1 + MAX_ROWS + 2);
        assert_eq!(lines[MAX_ROWS + 1], "... and 150 more");
        assert!(lines[MAX_ROWS + 2].starts_with("250 files  "));
    }
}
