//! `longhaul explain RECORD|CAPTURE`, `longhaul explain --pid N`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use longhaul_core::advice::LimitedSpan;
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::units::seconds;
use longhaul_engine::cancel::Cancel;
use longhaul_scope::capture::{Capture, Flow, Keep};
use longhaul_scope::diagnosis::{self, Diagnosis};
use longhaul_scope::record::Record;
use longhaul_scope::running_process::{self, LiveFlow};
use serde_json::{Value, json};

use crate::{exit, interrupt, say, stdout, values};

/// What to explain: a file, or a process.
///
/// Explain what limited a transfer, for which share of its time, by which evidence, and which
/// setting to change. A packet capture, or a process, may be of any program.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("subject").required(true))]
pub(crate) struct ExplainArgs {
    /// What --record has written, or a packet capture (pcap or pcapng) of either side
    #[arg(group = "subject", value_name = "RECORD|CAPTURE")]
    file: Option<PathBuf>,

    /// Observe the TCP connections of a running process instead
    #[arg(long, group = "subject", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Observe a process for this long
    #[arg(long = "for", value_name = "TIME", default_value = "5s", requires = "pid", value_parser = values::time)]
    time: Duration,

    /// Print one JSON object for each transfer or connection, the largest first
    #[arg(long)]
    json: bool,
}

/// Maximum of printed connections of a capture or a process; --json has all.
const MAX_SHOWN: usize = 5;
/// Maximum of printed changes of the limit; --json has all.
const MAX_SPANS: usize = 12;

/// One transfer or connection.
struct Explanation {
    what: String,
    facts: Value,
    /// Additional facts for the text output.
    more: String,
    diagnosis: Result<Diagnosis, String>,
}

/// Prints the diagnosis.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let explained = match (&args.file, args.pid) {
        (_, Some(process)) => of_process(process, args.time)?,
        (Some(file), None) if is_capture(file) => of_capture(file)?,
        (Some(file), None) => of_record(file)?,
        // clap requires one of both.
        (None, None) => Vec::new(),
    };
    if args.json {
        explained.iter().for_each(|one| stdout::line(one.json()));
    } else {
        explained.iter().take(MAX_SHOWN).for_each(|one| stdout::line(one.text()));
        if explained.len() > MAX_SHOWN {
            stdout::line(format_args!(
                "... and {} smaller ones; --json has all",
                explained.len() - MAX_SHOWN
            ));
        }
    }
    let any = explained.iter().any(|one| one.diagnosis.is_ok());
    Ok(if any { ExitCode::SUCCESS } else { exit::of(FailureKind::Data).into() })
}

/// Returns whether a file begins with a capture's magic number.
pub(super) fn is_capture(path: &Path) -> bool {
    /// pcap with microseconds and nanoseconds, in both byte orders, and pcapng.
    const MAGICS: [[u8; 4]; 5] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0x0a, 0x0d, 0x0d, 0x0a],
    ];
    let named = path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng");
    let mut begin = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    if read.is_ok() { MAGICS.contains(&begin) || named } else { named }
}

/// Reads the jobs of a record, and prints what is damaged.
pub(super) fn load_jobs(path: &Path) -> Result<Vec<Record>, Failure> {
    let jobs = Record::load_jobs(path)?;
    warn_of_damage(path, jobs.first().and_then(|job| job.damage.as_deref()));
    Ok(jobs)
}

fn warn_of_damage(path: &Path, damage: Option<&str>) {
    if let Some(damage) = damage {
        say::error(format_args!("WARNING: {} is damaged: {damage}", path.display()));
    }
}

fn of_record(path: &Path) -> Result<Vec<Explanation>, Failure> {
    let jobs = load_jobs(path)?;
    let run = jobs.first().and_then(|job| job.run.as_ref()).filter(|run| run.files > 1);
    let run = run.map(|run| Explanation {
        what: format!("{} files together", run.files),
        facts: json!({ "files": run.files }),
        more: String::new(),
        diagnosis: Ok(diagnosis::of_run(run)),
    });
    let explain = |job: Record| {
        let nothing = || "nothing was measured of it: record it with --record".to_owned();
        let what = job.header.what.clone();
        let facts = json!({ "what": what });
        Explanation {
            what,
            facts,
            more: String::new(),
            diagnosis: diagnosis::of_record(&job).ok_or_else(nothing),
        }
    };
    Ok(run.into_iter().chain(jobs.into_iter().map(explain)).collect())
}

fn of_capture(path: &Path) -> Result<Vec<Explanation>, Failure> {
    Ok(load_capture(path, Keep::Diagnosis)?.flows.into_iter().map(of_flow).collect())
}

/// Reads a capture, and prints what is damaged.
pub(super) fn load_capture(path: &Path, keep: Keep) -> Result<Capture, Failure> {
    let capture = Capture::load(path, keep)?;
    warn_of_damage(path, capture.damage.as_deref());
    Ok(capture)
}

fn of_flow(flow: Flow) -> Explanation {
    let what = format!("{} -> {}", flow.from, flow.to);
    let rtt = flow.min_rtt.map_or_else(|| "RTT unknown".into(), |rtt| format!("RTT {rtt}"));
    let side = match flow.coverage.at_sender {
        Some(true) => ", captured at the sender",
        Some(false) => ", captured at the receiver",
        None => "",
    };
    let handshake = if flow.coverage.has_handshake {
        ""
    } else {
        "; its handshake is missing, so the window is not known"
    };
    let more = format!("{rtt}, {} sent again or reordered{side}{handshake}", flow.retransmits);
    let facts = json!({
        "from": flow.from.to_string(),
        "to": flow.to.to_string(),
        "bytes": flow.bytes.get(),
        "seconds": seconds::of(flow.time),
        "min_rtt": flow.min_rtt.map(|rtt| seconds::of(rtt.get())),
        "retransmits": flow.retransmits,
        "at_sender": flow.coverage.at_sender,
    });
    Explanation { what, facts, more, diagnosis: flow.diagnosis.map_err(|why| why.to_string()) }
}

fn of_process(process: u32, time: Duration) -> Result<Vec<Explanation>, Failure> {
    let cancel = Cancel::new();
    let listening = interrupt::listen(&cancel);
    listening
        .map_err(|error| Failure::new(FailureKind::Host, format!("cannot listen for Ctrl-C: {error}")))?;
    let flows = running_process::observe(process, time, || cancel.is_cancelled())?;
    let explain = |flow: LiveFlow| {
        let what = format!("{} -> {}", flow.from, flow.to);
        let facts = json!({ "from": flow.from.to_string(), "to": flow.to.to_string(), "sends": flow.sends });
        let more = if flow.sends { "the process sends" } else { "the process receives" };
        Explanation { what, facts, more: more.into(), diagnosis: Ok(flow.diagnosis) }
    };
    Ok(flows.into_iter().map(explain).collect())
}

impl Explanation {
    fn json(&self) -> Value {
        let mut object = self.facts.clone();
        match &self.diagnosis {
            Ok(Diagnosis { finding, timeline, moved, time }) => {
                object["bytes"] = moved.get().into();
                object["seconds"] = seconds::of(*time).into();
                object["rate_bps"] = longhaul_core::units::Rate::over(*moved, *time).as_bits_per_sec().into();
                object["limited_by"] = finding.limit.name().into();
                object["shares"] = json!(finding.shares);
                object["witnesses"] = json!(finding.witnesses);
                object["advice"] = json!(finding.advice);
                object["timeline"] = timeline.iter().map(span_json).collect();
            }
            Err(why) => {
                object["limited_by"] = Value::Null;
                object["why"] = why.clone().into();
            }
        }
        object
    }

    fn text(&self) -> String {
        let mut lines = vec![self.what.clone()];
        if !self.more.is_empty() {
            lines.push(format!("  {}", self.more));
        }
        match &self.diagnosis {
            Ok(diagnosis) => {
                let Diagnosis { finding, timeline, moved, time } = diagnosis;
                lines.push(format!("  {moved} in {:.1} s, {}", time.as_secs_f64(), diagnosis.rate()));
                lines.extend(finding.advice.iter().map(|advice| format!("  {advice}")));
                lines.extend(timeline.iter().take(MAX_SPANS).map(span_text));
                if timeline.len() > MAX_SPANS {
                    lines.push(format!("    ... {} more changes", timeline.len() - MAX_SPANS));
                }
            }
            Err(why) => lines.push(format!("  {why}")),
        }
        lines.join("\n")
    }
}

fn span_json(span: &LimitedSpan) -> Value {
    json!({ "from": seconds::of(span.from), "to": seconds::of(span.to), "limited_by": span.limit.name() })
}

fn span_text(span: &LimitedSpan) -> String {
    format!("    {:6.1} s to {:6.1} s  {}", span.from.as_secs_f64(), span.to.as_secs_f64(), span.limit)
}
