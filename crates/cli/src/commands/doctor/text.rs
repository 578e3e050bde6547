//! The report as people read it.

use console::{Style, Term};
use longhaul_core::host_check::{Diagnosis, Finding, Fix, Origin, Severity, Unread};

use crate::stdout;

/// The width where stdout is no terminal.
const PLAIN_WIDTH: usize = 100;
/// Columns before the name of a finding.
const MARK: usize = 9;

/// Prints a diagnosis: what one stream can reach, findings, worst first, what was not read, how it
/// lasts.
pub(super) fn print(diagnosis: &Diagnosis, device: Result<&str, &String>, route: &str) {
    let width =
        Term::stdout().size_checked().map_or(PLAIN_WIDTH, |(_, columns)| usize::from(columns).max(60));
    let layout = Layout::of(diagnosis, width);
    let target = &diagnosis.target;
    stdout::line(format_args!(
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
    stdout::line(ceilings.receive.sentence("receives", target));
    stdout::line(ceilings.send.sentence("sends", target));
    stdout::line(format_args!("{}\n", counts(diagnosis)));
    layout.head();
    diagnosis.findings.iter().for_each(|finding| layout.finding(finding));
    diagnosis.unread.iter().for_each(|unread| layout.unread(unread));
    lasting(diagnosis);
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

/// The columns.
struct Layout {
    name: usize,
    measured: usize,
    width: usize,
}

impl Layout {
    /// The widest column of measured values: longer ones push what follows.
    const WIDEST: usize = 28;

    fn of(diagnosis: &Diagnosis, width: usize) -> Self {
        let names = diagnosis.findings.iter().map(|finding| finding.name);
        let names = names.chain(diagnosis.unread.iter().map(|unread| unread.name));
        let measured = diagnosis.findings.iter().map(|finding| finding.measured.chars().count());
        Self {
            name: names.map(str::len).max().unwrap_or(0),
            measured: measured.filter(|width| *width <= Self::WIDEST).max().unwrap_or(0),
            width,
        }
    }

    fn head(&self) {
        let (names, values) = (self.name, self.measured);
        let row = format!("{:MARK$}{:names$}  {:values$}  needed", "", "", "measured");
        stdout::line(Style::new().underlined().apply_to(row));
    }

    fn finding(&self, finding: &Finding) {
        let (mark, style) = match finding.severity {
            Severity::Problem => ("PROBLEM", Style::new().red().bold()),
            Severity::Advice => ("advice", Style::new().yellow()),
            Severity::Ok => ("ok", Style::new().green()),
        };
        let mark = style.apply_to(format!("{mark:MARK$}"));
        let (name, measured) = (finding.name, &finding.measured);
        let (names, values) = (self.name, self.measured);
        let row = format!("{mark}{name:names$}  {measured:values$}  {}", finding.needed);
        stdout::line(row.trim_end());
        if finding.severity == Severity::Ok {
            return;
        }
        self.detail(&finding.arithmetic);
        for command in finding.fix.iter().flat_map(|fix| &fix.commands) {
            // Not wrapped: it is to be copied.
            stdout::line(format_args!("{:MARK$}  fix: {command}", ""));
        }
        finding.fix.iter().for_each(|fix| self.detail(&fix.note));
        let source = Style::new().dim().apply_to(format!("see {}", finding.source));
        stdout::line(format_args!("{:MARK$}  {source}", ""));
    }

    fn unread(&self, unread: &Unread) {
        let mark = Style::new().dim().apply_to(format!("{:MARK$}", "not read"));
        stdout::line(format_args!("{mark}{:1$}  {2}", unread.name, self.name, unread.reason));
        self.detail(&format!("would show {}", unread.would_show));
    }

    /// Prints text below a finding, wrapped at words.
    fn detail(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        for line in wrapped(text, self.width.saturating_sub(MARK + 2)) {
            stdout::line(format_args!("{:MARK$}  {line}", ""));
        }
    }
}

/// Prints the lines that make the fixes last, by file.
fn lasting(diagnosis: &Diagnosis) {
    for (file, lines) in lasting_files(diagnosis.fixes()) {
        stdout::line(format_args!("\nTo make it last, in {file}:"));
        lines.iter().for_each(|line| stdout::line(format_args!("  {line}")));
    }
    if !diagnosis.changes().is_empty() {
        stdout::line(
            "\nlonghaul doctor --fix applies what it can until the next start, --fix --permanent for good; --undo takes it back.",
        );
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
    use super::*;

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
