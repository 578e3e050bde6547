//! The report as Markdown and as JSON.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;
use serde::Serialize;

use crate::bench_part::BenchPart;
use crate::bench_run::BenchRun;
use crate::clients::{BenchClient, Streams};
use crate::machine::Machine;
use crate::markdown_table;
use crate::streams::fairness::{self, FairnessSessions};

/// The memory limit of longhaul: 64 MiB of application buffer by default, and 64 MiB besides.
const MEMORY_LIMIT: Bytes = Bytes::mib(64 + 64);

/// All measurements, and their machine.
#[derive(Debug, Serialize)]
pub(crate) struct BenchReport {
    command: String,
    machine: Machine,
    repetitions: u32,
    runs: Vec<BenchRun>,
    sessions: Vec<FairnessSessions>,
}

/// A goal, and whether it was met.
#[derive(Debug)]
pub(crate) struct Goal {
    asked: String,
    measured: String,
    met: bool,
}

impl Goal {
    pub(crate) fn new(asked: String, measured: String, met: bool) -> Self {
        Self { asked, measured, met }
    }

    /// Returns the goal's row of the table.
    pub(crate) fn row(&self) -> Vec<String> {
        let met = if self.met { "yes" } else { "**no**" };
        vec![self.asked.clone(), self.measured.clone(), met.to_owned()]
    }

    /// Returns what was measured for each goal and whether it was met, for tests.
    #[cfg(test)]
    pub(crate) fn measured(goals: &[Self]) -> Vec<String> {
        goals.iter().map(|goal| goal.row()[1..].join(" ")).collect()
    }
}

impl BenchReport {
    /// Starts a report without runs.
    pub(crate) fn new(machine: Machine, repetitions: u32) -> Self {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let command = match arguments.join(" ") {
            none if none.is_empty() => "make bench".to_owned(),
            some => format!("make bench ARGS=\"{some}\""),
        };
        Self { command, machine, repetitions, runs: Vec::new(), sessions: Vec::new() }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, run: BenchRun) {
        self.runs.push(run);
    }

    /// Adds sessions that shared a path.
    pub(crate) fn add_sessions(&mut self, sessions: FairnessSessions) {
        self.sessions.push(sessions);
    }

    /// Returns the numbers of runs and of sessions.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.runs.len(), self.sessions.len())
    }

    /// Removes the runs and sessions beyond these numbers.
    pub(crate) fn truncate(&mut self, (runs, sessions): (usize, usize)) {
        self.runs.truncate(runs);
        self.sessions.truncate(sessions);
    }

    /// Formats the report as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let (command, machine) = (&self.command, self.machine.sentence());
        let mut text = format!(
            "# Measured by `{command}`\n\n{machine} A file of random data, in the sender's page cache but for \
             ICDC's path, where it is not there at all; \
             {}, the clients in turns, each run on a path of its own. Before each the copy is removed and \
             all is synced; no run uses what another has learnt of a path. Longhaul, fio and the experiments end with an fsync; \
             curl does not, so the second column adds one to each. CPU is user and system time of the client, \
             without the emulated network's. Marked are runs in which the emulator did not keep up, or the two hosts \
             together ran short of TCP memory, and whose repetitions were no better: they are in no figure but the limit of memory, unless all of a \
             client are marked. Each first copy was compared with the \
             original.\n\n",
            match self.repetitions {
                1 => "one repetition".to_owned(),
                more => format!("{more} repetitions"),
            }
        );
        text.push_str(&self.targets());
        for part in BenchPart::ALL {
            text.push_str(&part.section(&self.of(part)));
        }
        text.push_str(&fairness::section(&self.sessions));
        if !self.runs.is_empty() {
            text.push_str(&self.commands());
            text.push_str(&self.all_runs());
        }
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

    fn of(&self, part: BenchPart) -> Vec<&BenchRun> {
        self.runs.iter().filter(|run| run.part == part).collect()
    }

    fn targets(&self) -> String {
        let mut targets: Vec<_> =
            BenchPart::ALL.into_iter().flat_map(|part| part.targets(&self.of(part))).collect();
        targets.extend(fairness::targets(&self.sessions));
        if targets.is_empty() {
            return String::new();
        }
        // Clients with a default writer, and with one stream or an automatic number.
        let is_usual =
            |run: &&BenchRun| matches!(run.client, BenchClient::Streams(Streams::Auto | Streams::Fixed(1)));
        let ours = self.runs.iter().filter(is_usual);
        if let Some(largest) = ours.map(|run| Bytes::new(run.max_rss_bytes)).max() {
            let asked = "memory of the client under 64 MiB and the application buffer (64 MiB)".to_owned();
            targets.push(Goal::new(asked, largest.to_string(), largest < MEMORY_LIMIT));
        }
        let rows: Vec<_> = targets.iter().map(Goal::row).collect();
        format!("## What was asked\n\n{}\n", markdown_table::markdown(&["asked", "measured", "met"], &rows))
    }

    fn commands(&self) -> String {
        let mut firsts: Vec<&BenchRun> = Vec::new();
        for run in &self.runs {
            if !firsts.iter().any(|first| first.client == run.client) {
                firsts.push(run);
            }
        }
        let row = |run: &&BenchRun| {
            vec![run.client.to_string(), format!("`{}`", run.client.shown(Bytes::new(run.bytes)))]
        };
        let rows: Vec<_> = firsts.iter().map(row).collect();
        format!("## Commands\n\n{}\n", markdown_table::markdown(&["client", "command"], &rows))
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
        let row = |run: &BenchRun| {
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
        let _ = writeln!(text, "## All runs, in order\n\n{}", markdown_table::markdown(&head, &rows));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::BenchPath;

    /// A report without a machine to describe.
    fn report(runs: Vec<BenchRun>) -> BenchReport {
        let (command, machine) = ("make bench".to_owned(), Machine::default());
        BenchReport { command, machine, repetitions: 1, runs, sessions: Vec::new() }
    }

    fn run(part: BenchPart, client: BenchClient, gib: u64, wall_s: f64) -> BenchRun {
        BenchRun { part, ..BenchRun::timed(BenchPath::LongCubic, client, Bytes::gib(gib), wall_s) }
    }

    #[test]
    fn parts_on_one_path_are_kept_apart() {
        let one = BenchClient::Streams(Streams::Fixed(1));
        let report = report(vec![
            run(BenchPart::LongPath, one, 8, 10.0),
            run(BenchPart::LongPath, BenchClient::Curl, 8, 20.0),
            run(BenchPart::StreamsTuned, BenchClient::Streams(Streams::Auto), 1, 3.0),
            run(BenchPart::StreamsTuned, BenchClient::Curl, 1, 6.0),
        ]);
        let text = report.markdown();
        // Large files only: 20 s over 10 s.
        assert!(text.contains("cubic: goodput at least curl's | 2.000x | yes |"), "{text}");
        assert!(text.contains("1 GiB in at most 0.8x curl's time | 0.500x | yes |"), "{text}");
        assert!(!text.contains("8 GiB in at most"), "{text}");
        assert_eq!(text.matches("## 10 Gbit/s, RTT 200 ms, cubic, tuned hosts").count(), 2, "{text}");
        let run = &serde_json::to_value(&report).unwrap()["runs"][3];
        assert_eq!((&run["part"], &run["client"]), (&"streams-tuned".into(), &"curl".into()));
        // A report without runs has no tables.
        let text = self::report(Vec::new()).markdown();
        assert!(text.contains("one repetition, the clients in turns") && !text.contains("##"), "{text}");
    }
}
