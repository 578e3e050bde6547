//! The report: Markdown to read, JSON to work with.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;
use serde::Serialize;

use crate::machine::Machine;
use crate::peers::Client;
use crate::run::Run;
use crate::{buffers, icdc, long_path, no_delay, streams, table};

/// Longhaul's application buffer by default, and what it may need besides.
const MEMORY: Bytes = Bytes::mib(64 + 64);

/// Everything measured, and on what.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    command: String,
    machine: Machine,
    repetitions: u32,
    runs: Vec<Run>,
}

/// Something asked of longhaul, and whether it was met.
#[derive(Debug)]
pub(crate) struct Target {
    asked: String,
    measured: String,
    met: bool,
}

impl Target {
    pub(crate) fn new(asked: String, measured: String, met: bool) -> Self {
        Self { asked, measured, met }
    }

    fn row(&self) -> Vec<String> {
        let met = if self.met { "yes" } else { "**no**" };
        vec![self.asked.clone(), self.measured.clone(), met.to_owned()]
    }
}

impl Report {
    /// Starts a report without runs.
    pub(crate) fn new(machine: Machine, repetitions: u32) -> Self {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let command = match arguments.join(" ") {
            none if none.is_empty() => "make bench".to_owned(),
            some => format!("make bench ARGS=\"{some}\""),
        };
        Self { command, machine, repetitions, runs: Vec::new() }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// Returns all of it as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let (command, machine) = (&self.command, self.machine.sentence());
        let mut text = format!(
            "# Measured by `{command}`\n\n{machine} A file of random data, in the sender's page cache but for \
             ICDC's path, where it is not there at all; \
             {} repetitions, the clients in turns, each run on a path of its own. Before each the copy is removed and \
             all is synced. Longhaul, fio and the experiments end with an fsync; \
             curl does not, so the second column adds one to each. CPU is user and system time of the client, \
             without the emulated network's. Marked are runs in which the emulator did not keep up, or the two hosts \
             together ran short of TCP memory; they count all the same. Each first copy was compared with the \
             original.\n\n",
            self.repetitions
        );
        for section in [
            self.targets(),
            long_path::section(&self.runs),
            no_delay::section(&self.runs),
            icdc::section(&self.runs),
            streams::section(&self.runs),
        ] {
            text.push_str(&section);
        }
        text.push_str(&buffers::section(&self.runs));
        text.push_str(&self.commands());
        text.push_str(&self.all_runs());
        text
    }

    /// Writes report.md and report.json into `dir`.
    ///
    /// # Errors
    /// Names the file that cannot be written.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        for (name, content) in
            [("report.md", self.markdown()), ("report.json", serde_json::to_string_pretty(self)?)]
        {
            let path = dir.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn targets(&self) -> String {
        let mut targets = long_path::targets(&self.runs);
        targets.extend(no_delay::targets(&self.runs));
        targets.extend(icdc::targets(&self.runs));
        targets.extend(streams::targets(&self.runs));
        if targets.is_empty() {
            return String::new();
        }
        let ours = self.runs.iter().filter(|run| run.client == Client::Longhaul(None));
        if let Some(largest) = ours.map(|run| Bytes::new(run.max_rss_bytes)).max() {
            let asked = "memory of the client under 64 MiB and the application buffer (64 MiB)".to_owned();
            targets.push(Target::new(asked, largest.to_string(), largest < MEMORY));
        }
        let rows: Vec<_> = targets.iter().map(Target::row).collect();
        format!("## What was asked\n\n{}\n", table::markdown(&["asked", "measured", "met"], &rows))
    }

    fn commands(&self) -> String {
        let mut firsts: Vec<&Run> = Vec::new();
        for run in &self.runs {
            if !firsts.iter().any(|first| first.client == run.client) {
                firsts.push(run);
            }
        }
        let row = |run: &&Run| {
            vec![run.client.to_string(), format!("`{}`", run.client.shown(Bytes::new(run.bytes)))]
        };
        let rows: Vec<_> = firsts.iter().map(row).collect();
        format!("## Commands\n\n{}\n", table::markdown(&["client", "command"], &rows))
    }

    fn all_runs(&self) -> String {
        let head = [
            "path",
            "client",
            "run",
            "bytes",
            "wall, s",
            "fsync after, s",
            "user, s",
            "system, s",
            "RSS",
            "packets dropped",
            "marked",
        ];
        let row = |run: &Run| {
            vec![
                run.path.to_string(),
                run.client.to_string(),
                run.repetition.to_string(),
                Bytes::new(run.bytes).to_string(),
                format!("{:.2}", run.wall_s),
                format!("{:.2}", run.flush_s),
                format!("{:.2}", run.user_s),
                format!("{:.2}", run.sys_s),
                Bytes::new(run.max_rss_bytes).to_string(),
                run.dropped.to_string(),
                run.warnings.join("; "),
            ]
        };
        let rows: Vec<_> = self.runs.iter().map(row).collect();
        let mut text = String::new();
        let _ = writeln!(text, "## All runs, in order\n\n{}", table::markdown(&head, &rows));
        text
    }
}
