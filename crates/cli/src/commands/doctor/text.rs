//! The report as people read it.

use std::fmt::{Display, Write};

use console::{Style, Term};
use longhaul_core::host_check::{Diagnosis, Finding, Fix, Origin, Severity, Unread};

use crate::stdout;

/// The width where stdout is no terminal.
const PLAIN_WIDTH: usize = 100;
/// Columns before the name of a finding.
const MARK: usize = 9;

/// Prints a diagnosis.
pub(super) fn print(diagnosis: &Diagnosis, device: Result<&str, &String>, route: &str) {
    let width =
        Term::stdout().size_checked().map_or(PLAIN_WIDTH, |(_, columns)| usize::from(columns).max(60));
    stdout::line(text(diagnosis, device, route, width).trim_end());
}

/// Formats a diagnosis: what one stream can reach, findings, worst first, what was not read, how
/// it lasts.
fn text(diagnosis: &Diagnosis, device: Result<&str, &String>, route: &str, width: usize) -> String {
    let mut report = Report::of(diagnosis, width);
    let target = &diagnosis.target;
    report.line(format_args!(
        "For {} ({}) at an RTT of {} ({}): {} in flight. Device: {}",
        target.rate,
        if target.rate_origin == Origin::Measured {
            "of the link".to_owned()
        } else {
            target.rate_origin.to_string()
        },
        target.rtt,
        target.rtt_origin,
        target.bdp(),
        device.map_or_else(|why| format!("none: {why}"), |device| format!("{device} ({route})"))
    ));
    let ceilings = &diagnosis.ceilings;
    report.line(ceilings.receive.sentence("receives", target));
    report.line(ceilings.send.sentence("sends", target));
    report.line(format_args!("{}\n", counts(diagnosis)));
    report.head();
    diagnosis.findings.iter().for_each(|finding| report.finding(finding));
    diagnosis.unread.iter().for_each(|unread| report.unread(unread));
    report.lasting(diagnosis);
    report.text
}

/// Says how many findings there are of each kind.
fn counts(diagnosis: &Diagnosis) -> String {
    let count = |severity| diagnosis.findings.iter().filter(|finding| finding.severity == severity).count();
    let problems = count(Severity::Problem);
    format!(
        "{problems} problem{}, {} to consider, {} ok, {} not read",
        if problems == 1 { "" } else { "s" },
        count(Severity::Advice),
        count(Severity::Ok),
        diagnosis.unread.len()
    )
}

/// The text so far, and its columns.
struct Report {
    text: String,
    name: usize,
    measured: usize,
    width: usize,
}

impl Report {
    /// The widest column of measured values: longer ones push what follows.
    const WIDEST: usize = 28;

    fn of(diagnosis: &Diagnosis, width: usize) -> Self {
        let names = diagnosis.findings.iter().map(|finding| finding.name);
        let names = names.chain(diagnosis.unread.iter().map(|unread| unread.name));
        let measured = diagnosis.findings.iter().map(|finding| finding.measured.chars().count());
        Self {
            text: String::new(),
            name: names.map(str::len).max().unwrap_or(0),
            measured: measured.filter(|width| *width <= Self::WIDEST).max().unwrap_or(0),
            width,
        }
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn head(&mut self) {
        let (names, values) = (self.name, self.measured);
        let row = format!("{:MARK$}{:names$}  {:values$}  needed", "", "", "measured");
        self.line(Style::new().underlined().apply_to(row));
    }

    fn finding(&mut self, finding: &Finding) {
        let (mark, style) = match finding.severity {
            Severity::Problem => ("PROBLEM", Style::new().red().bold()),
            Severity::Advice => ("advice", Style::new().yellow()),
            Severity::Ok => ("ok", Style::new().green()),
        };
        let mark = style.apply_to(format!("{mark:MARK$}"));
        let (name, measured) = (finding.name, &finding.measured);
        let (names, values) = (self.name, self.measured);
        let row = format!("{mark}{name:names$}  {measured:values$}  {}", finding.needed);
        self.line(row.trim_end());
        if finding.severity == Severity::Ok {
            return;
        }
        self.detail(&finding.arithmetic);
        for command in finding.fix.iter().flat_map(|fix| &fix.commands) {
            // Not wrapped: it is to be copied.
            self.line(format_args!("{:MARK$}  fix: {command}", ""));
        }
        finding.fix.iter().for_each(|fix| self.detail(&fix.note));
        let source = Style::new().dim().apply_to(format!("see {}", finding.source));
        self.line(format_args!("{:MARK$}  {source}", ""));
    }

    fn unread(&mut self, unread: &Unread) {
        let (mark, names) = (Style::new().dim().apply_to(format!("{:MARK$}", "not read")), self.name);
        self.line(format_args!("{mark}{:names$}  {}", unread.name, unread.reason));
        self.detail(&format!("would show {}", unread.would_show));
    }

    /// Writes text below a finding, wrapped at words.
    fn detail(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        for line in wrapped(text, self.width.saturating_sub(MARK + 2)) {
            self.line(format_args!("{:MARK$}  {line}", ""));
        }
    }

    /// Writes the lines that make the fixes last, by file.
    fn lasting(&mut self, diagnosis: &Diagnosis) {
        for (file, lines) in lasting_files(diagnosis.fixes()) {
            self.line(format_args!("\nTo make it last, in {file}:"));
            lines.iter().for_each(|line| self.line(format_args!("  {line}")));
        }
        if !diagnosis.changes().is_empty() {
            self.line(
                "\nlonghaul doctor --fix applies what it can until the next start, --fix --permanent for good; --undo takes it back.",
            );
        }
    }
}

/// Returns the files that make fixes last, each once, and their lines, each once.
pub(super) fn lasting_files<'a>(fixes: impl Iterator<Item = &'a Fix>) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut files: Vec<(&str, Vec<&str>)> = Vec::new();
    for lasting in fixes.flat_map(|fix| fix.modules.iter().chain(&fix.lasting)) {
        let index = files.iter().position(|(file, _)| *file == lasting.file).unwrap_or_else(|| {
            files.push((&lasting.file, Vec::new()));
            files.len() - 1
        });
        for line in &lasting.lines {
            if !files[index].1.contains(&line.as_str()) {
                files[index].1.push(line);
            }
        }
    }
    files
}

/// Breaks text into lines of at most `width` characters where its words allow.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::host_check::{
        self, AutotuneLimits, BufferFacts, CongestionFacts, DeviceFacts, DirectIoFact, DiskFacts, FileLimits,
        HostFacts, KernelVersion, LinkNegotiation, NumaFacts, Offload, Qdisc, ResourceFacts, RingSizes,
        Target, TcpFacts, TcpMemory, WriteTest,
    };
    use longhaul_core::units::{Bytes, Rate, Rtt};
    use serde_json::to_string_pretty;

    use super::super::as_json;
    use super::*;
    use crate::json::tests::without_values;

    fn mbit(mbit: u64) -> Rate {
        Rate::bits_per_sec(mbit * 1_000_000)
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Makes a host that fails most checks.
    fn unfit_host() -> HostFacts {
        let limits = AutotuneLimits { min: Bytes::kib(4), default: Bytes::kib(128), max: Bytes::mib(6) };
        let (fastest, fastest_offered) = (Some(mbit(25_000)), Some(mbit(1000)));
        HostFacts {
            kernel: Ok(KernelVersion(6, 12)),
            buffers: BufferFacts {
                tcp_rmem: Ok(limits),
                tcp_wmem: Ok(limits),
                rmem_max: Ok(Bytes::kib(208)),
                wmem_max: Ok(Bytes::kib(208)),
                tcp_mem: Ok(TcpMemory { low: 3000, pressure: 4000, limit: 6000, page: Bytes::kib(4) }),
                adv_win_scale: Ok(1),
            },
            tcp: TcpFacts {
                window_scaling: Ok(true),
                sack: Ok(false),
                timestamps: Ok(false),
                slow_start_after_idle: Ok(true),
                mtu_probing: Ok(0),
            },
            congestion: CongestionFacts {
                current: Ok("reno".to_owned()),
                available: Ok(names(&["reno"])),
                allowed: Ok(names(&["reno"])),
                modules: Ok(names(&["tcp_bbr", "tcp_cubic"])),
            },
            device: Ok(DeviceFacts {
                name: "eth0".to_owned(),
                is_loopback: false,
                mtu: Ok(1500),
                qdisc: Ok(Qdisc { root: "mq".to_owned(), children: names(&["fq_codel"]), is_default: true }),
                speed: Ok(mbit(1000)),
                negotiation: Ok(LinkNegotiation {
                    is_on: true,
                    is_possible: true,
                    fastest,
                    fastest_offered,
                    fastest_of_peer: fastest,
                }),
                offloads: Ok(["tso", "gso", "gro", "sg", "tx", "rx"]
                    .map(|name| Offload { name, on: name == "rx", switchable: vec!["tx-checksumming"] })
                    .into()),
                rings: Ok(RingSizes { rx: 256, rx_max: 8192, tx: 256, tx_max: 8192 }),
                numa: Ok(NumaFacts { node: Some(1), nodes: 2, runs_elsewhere: true }),
            }),
            disk: DiskFacts {
                path: "/data".into(),
                free: Ok(Bytes::gib(1)),
                direct_io: Ok(DirectIoFact::Impossible),
                write_test: Some(Ok(WriteTest {
                    written: Bytes::gib(1),
                    took: Duration::from_secs(2),
                    stall: Duration::from_millis(400),
                    direct: false,
                })),
            },
            resources: ResourceFacts {
                governors: Ok(names(&["powersave"])),
                memory: Ok(Bytes::mib(64)),
                files: Ok(FileLimits { soft: 64, hard: 64 }),
                group_memory: Ok(Some(Bytes::mib(32))),
                group_cpu_thousandths: Ok(Some(500)),
            },
        }
    }

    /// Returns the text and the field names of `--json`.
    fn shown(facts: &HostFacts) -> String {
        let target = Target {
            rate: mbit(10_000),
            rate_origin: Origin::Given,
            rtt: Rtt::new(Duration::from_millis(200)),
            rtt_origin: Origin::Assumed,
        };
        let diagnosis = host_check::check(facts, &target);
        let device = facts.device.as_ref().map(|device| device.name.as_str());
        let text = text(&diagnosis, device, "default route", PLAIN_WIDTH);
        let json = without_values(as_json(&diagnosis, (device.ok(), "default route"), None));
        format!("{}\n{}", console::strip_ansi_codes(&text), to_string_pretty(&json).unwrap())
    }

    #[test]
    fn each_finding_has_its_arithmetic_its_fix_and_its_source() {
        insta::assert_snapshot!("unfit_host", shown(&unfit_host()));
    }

    #[test]
    fn what_could_not_be_read_is_named() {
        let unread = || "permission denied".to_owned();
        let mut facts = HostFacts { device: Err(unread()), kernel: Err(unread()), ..unfit_host() };
        (facts.buffers.tcp_rmem, facts.buffers.tcp_wmem) = (Err(unread()), Err(unread()));
        (facts.disk.free, facts.resources.governors) = (Err(unread()), Err(unread()));
        insta::assert_snapshot!("unread_host", shown(&facts));
    }

    #[test]
    fn lines_that_make_fixes_last_are_gathered_by_file_and_text_is_wrapped() {
        let fixes = [
            Fix::sysctl("net.a", "1").after_module("tcp_bbr".to_owned()),
            Fix::command("x").lasting_in_service(&["MemoryMax=1".to_owned()]),
            Fix::sysctl("net.b", "2").after_module("tcp_bbr".to_owned()),
            Fix::command("y").lasting_in_service(&["CPUQuota=200%".to_owned()]),
        ];
        let files = lasting_files(fixes.iter());
        let lines: Vec<_> = files.into_iter().map(|(_, lines)| lines).collect();
        let service = vec!["[Service]", "MemoryMax=1", "CPUQuota=200%"];
        assert_eq!(lines, [vec!["tcp_bbr"], vec!["net.a = 1", "net.b = 2"], service]);
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a-very-long-word b", 5), ["a-very-long-word", "b"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
