//! Processors, memory, and limits of the process.

use super::Diagnosis;
use super::facts::{FileLimits, HostFacts, ResourceFacts};
use super::finding::{BEFORE_EACH_TRANSFER, Finding, Fix, GOVERNOR, Severity, TMPFILES};
use super::target::{Target, needed_buffers};
use crate::buffer_plan::window_ceiling;
use crate::units::Bytes;

/// Files that transfers open: 64 sockets of `--streams auto` for each of 3 files at once, as many
/// pipes, files, and room.
const FILES: u64 = 512;
/// Memory beside socket buffers: the application buffer (64 MiB), which grows while a disk stalls,
/// and the program.
const BESIDE_SOCKETS: Bytes = Bytes::mib(256);
/// Processors that a transfer uses: one receives or sends, one writes or reads, in thousandths.
const CPU_THOUSANDTHS: u64 = 2000;
const GROUPS: &str = "kernel documentation, admin-guide/cgroup-v2 and cgroup-v1";

pub(super) fn check(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    governor(&facts.resources, report);
    let [receive, send] = needed_buffers(facts, target);
    let needed = receive.max(send) + BESIDE_SOCKETS;
    let arithmetic =
        format!("a full socket buffer {} + {BESIDE_SOCKETS} of the program = {needed}", receive.max(send));
    let resources = &facts.resources;
    let would_show = "whether the buffers fit into memory";
    report.judge(&resources.memory, "memory", would_show, |memory| {
        let severity = if *memory < needed { Severity::Problem } else { Severity::Ok };
        Finding::new(severity, format!("{memory} available"), "proc(5), MemAvailable")
            .needs(needed.to_string(), &arithmetic)
            .counted(memory.get(), needed.get(), "bytes")
            .fixed_by(smaller_buffer(*memory, target))
    });
    let would_show = "whether many streams can open their sockets";
    report.judge(&resources.files, "open files", would_show, |limits| open_files(*limits));
    let would_show = "whether a control group limits memory, socket buffers included";
    report.judge(&resources.group_memory, "cgroup memory", would_show, |left| {
        let severity = if left.is_some_and(|left| left < needed) { Severity::Problem } else { Severity::Ok };
        let measured = left.map_or("no limit".to_owned(), |left| format!("{left} left"));
        Finding::new(severity, measured, GROUPS)
            .needs(needed.to_string(), &arithmetic)
            .fixed_by(in_group("MemoryMax", &(needed.get() * 2).to_string()))
    });
    let would_show = "whether a control group limits CPU time";
    report.judge(&resources.group_cpu_thousandths, "cgroup CPU", would_show, |quota| cpu_quota(*quota));
}

fn governor(resources: &ResourceFacts, report: &mut Diagnosis) {
    let would_show = "whether processors slow down between bursts of packets";
    report.judge(&resources.governors, "CPU governor", would_show, |governors| {
        let is_fast = governors.iter().all(|governor| governor == "performance");
        let severity = if is_fast { Severity::Ok } else { Severity::Advice };
        let files = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
        Finding::new(severity, governors.join(" "), "ESnet fasterdata, Linux host tuning, CPU governor")
            .needs("performance", "a clock that follows the load lags behind bursts of packets")
            .fixed_by(
                Fix::command(format!("for file in {files}; do echo performance > $file; done"))
                    .lasting(TMPFILES, format!("w {files} - - - - performance"))
                    .changing(GOVERNOR, "performance"),
            )
    });
}

fn open_files(limits: FileLimits) -> Finding {
    let severity = if limits.soft < FILES { Severity::Problem } else { Severity::Ok };
    // The hard limit suffices, or is to be raised as well.
    let (which, files) = if limits.hard < FILES { ("-", 4 * FILES) } else { ("soft", FILES) };
    let fix = Fix::command(format!("ulimit -n {FILES}"))
        .lasting("/etc/security/limits.d/90-longhaul.conf", format!("* {which} nofile {files}"))
        .noted("the file counts from the next login on; a service has LimitNOFILE=, and longhaul serve raises its limit itself");
    Finding::new(severity, format!("{} (hard limit {})", limits.soft, limits.hard), "getrlimit(2)")
        .needs(FILES.to_string(), "3 files at once x 64 streams = 192 sockets; as many pipes; files and room")
        .counted(limits.soft, FILES, "files")
        .fixed_by(fix)
}

fn cpu_quota(thousandths: Option<u64>) -> Finding {
    let cores = |thousandths: u64| format!("{:.1} processors", thousandths as f64 / 1e3);
    let severity = match thousandths {
        Some(quota) if quota < CPU_THOUSANDTHS / 2 => Severity::Problem,
        Some(quota) if quota < CPU_THOUSANDTHS => Severity::Advice,
        _ => Severity::Ok,
    };
    Finding::new(severity, thousandths.map_or("no quota".to_owned(), cores), GROUPS)
        .needs(
            cores(CPU_THOUSANDTHS),
            "one to receive or send, one to write or read; a quota pauses them in every period",
        )
        .fixed_by(in_group("CPUQuota", "200%"))
}

/// Returns the fix that a control group of the transfer's own is.
fn in_group(property: &str, value: &str) -> Fix {
    Fix::command(format!("systemd-run --scope -p {property}={value} longhaul get URL"))
        .lasting_in_service(&[format!("{property}={value}")])
        .noted(format!("{BEFORE_EACH_TRANSFER}; a container takes its limits from outside"))
}

/// Returns the socket buffer that the memory holds, and what it costs.
fn smaller_buffer(memory: Bytes, target: &Target) -> Fix {
    let more = "end other programs, or add memory: no setting makes more of it";
    let buffer = Bytes::new(memory.get().saturating_sub(BESIDE_SOCKETS.get()));
    let mib = buffer.get() >> 20;
    if mib == 0 {
        return Fix::advice(more);
    }
    let rate = window_ceiling(buffer, target.rtt).min(target.rate);
    Fix::command(format!("longhaul get --recv-buffer {mib}MiB URL"))
        .lasting_option("recv-buffer", format_args!("{mib}MiB"))
        .noted(format!("{more}; with this buffer one stream carries at most {rate}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fix, judged, severity};
    use super::*;

    #[test]
    fn governor_and_quota_of_processors_are_judged() {
        let finding =
            judged("CPU governor", |facts| facts.resources.governors = Ok(vec!["powersave".to_owned()]));
        assert_eq!(finding.severity, Severity::Advice);
        let lasting = finding.fix.unwrap().lasting.unwrap();
        assert!(lasting.file.starts_with("/etc/tmpfiles.d/") && lasting.lines[0].ends_with("performance"));
        // A quota below two processors, and below one.
        let judge =
            |quota| severity("cgroup CPU", |facts| facts.resources.group_cpu_thousandths = Ok(Some(quota)));
        assert_eq!([2000, 1999, 999].map(judge), [Severity::Ok, Severity::Advice, Severity::Problem]);
    }

    #[test]
    fn memory_must_hold_a_socket_buffer_and_the_program() {
        let needed = 500_000_000 + (256 << 20);
        let host = |bytes| severity("memory", |facts| facts.resources.memory = Ok(Bytes::new(bytes)));
        let group = |bytes| {
            judged("cgroup memory", |facts| facts.resources.group_memory = Ok(Some(Bytes::new(bytes))))
        };
        let verdicts = [Severity::Ok, Severity::Problem];
        assert_eq!([needed, needed - 1].map(host), verdicts);
        assert_eq!([needed, needed - 1].map(|bytes| group(bytes).severity), verdicts);
        let lasting = group(0).fix.unwrap().lasting.unwrap();
        assert!(lasting.file.starts_with("/etc/systemd/system/longhaul-serve.service.d/"), "{lasting:?}");
        assert_eq!(lasting.lines, ["[Service]".to_owned(), format!("MemoryMax={}", 2 * needed)]);
    }

    #[test]
    fn little_memory_is_cured_by_a_smaller_buffer_where_one_fits() {
        let fix = |mib| fix("memory", |facts| facts.resources.memory = Ok(Bytes::mib(mib)));
        // 100 MiB / 200 ms.
        let some = fix(356);
        assert_eq!(some.commands, ["longhaul get --recv-buffer 100MiB URL"]);
        assert_eq!(some.lasting.unwrap().lines, ["recv-buffer = \"100MiB\""]);
        assert!(some.note.ends_with("one stream carries at most 4.19 Gbit/s"), "{}", some.note);
        let none = fix(256);
        assert!(none.commands.is_empty() && none.note.contains("add memory"), "{none:?}");
    }

    #[test]
    fn few_files_are_a_problem_and_the_hard_limit_decides_the_cure() {
        for (soft, hard, severity, line) in [
            (512, 512, Severity::Ok, None),
            (511, 1024, Severity::Problem, Some("* soft nofile 512")),
            (64, 64, Severity::Problem, Some("* - nofile 2048")),
        ] {
            let finding = judged("open files", |facts| facts.resources.files = Ok(FileLimits { soft, hard }));
            let lines = finding.fix.map(|fix| fix.lasting.unwrap().lines.join("; "));
            assert_eq!((finding.severity, lines.as_deref()), (severity, line), "{soft}, {hard}");
        }
    }
}
