//! Where the file goes: speed, stalls, free space, alignment.

use std::path::Path;

use super::Diagnosis;
use super::facts::{DirectIoFact, DiskFacts, WriteTest};
use super::finding::{Finding, Fix, Severity};
use super::target::Target;
use crate::units::{Bytes, Rate};

/// How long the free space should last at the target rate, in seconds: a few checkpoints, and time
/// for an administrator to act.
const FREE_SECONDS: u64 = 60;
/// The application buffer of a transfer, which bridges a stall of the disk (`--app-buffer auto`, 64
/// MiB as in UsadaFox).
const APP_BUFFER: Bytes = Bytes::mib(64);
/// The alignment that segments and journal keep; a file system that needs more gets buffered
/// writes.
const LARGEST_ALIGNMENT: Bytes = Bytes::kib(64);
const USADAFOX: &str = "UsadaFox, sections 3 and 4 (Direct I/O, application buffer)";

pub(super) fn check(disk: &DiskFacts, target: &Target, report: &mut Diagnosis) {
    if let Some(test) = &disk.write_test {
        let would_show = "whether the disk writes as fast as the path delivers, and how long it stalls";
        report.judge(test, "disk write rate", would_show, |test| write_rate(*test, &disk.path, target));
        if let Ok(test) = test {
            report.push("disk stall", stall(*test, target));
        }
    }
    let would_show = "whether the file will fit";
    report.judge(&disk.free, "free space", would_show, |free| free_space(*free, &disk.path, target));
    let would_show = "whether writes can go past the page cache, and in which units";
    report.judge(&disk.direct_io, "Direct I/O", would_show, |direct_io| alignment(*direct_io));
}

fn write_rate(test: WriteTest, path: &Path, target: &Target) -> Finding {
    let rate = Rate::over(test.written, test.took);
    let severity = if rate < target.rate { Severity::Problem } else { Severity::Ok };
    let how = if test.direct { "Direct I/O" } else { "the page cache and fdatasync" };
    let arithmetic = format!(
        "{} in {:.2} s by {how} in {} = {rate}",
        test.written,
        test.took.as_secs_f64(),
        path.display()
    );
    Finding::new(severity, rate.to_string(), USADAFOX)
        .needs(target.rate.to_string(), arithmetic)
        .counted(rate.as_bits_per_sec(), target.rate.as_bits_per_sec(), "bit/s")
        .fixed_by(elsewhere("on a faster disk, which longhaul doctor --disk DIRECTORY measures"))
}

/// Returns the fix that another directory is.
fn elsewhere(which: &str) -> Fix {
    Fix::command("longhaul get -o DIRECTORY/ URL").noted(format!(
        "DIRECTORY: one {which}; no setting changes this one, so each transfer is to name the other"
    ))
}

fn stall(test: WriteTest, target: &Target) -> Finding {
    let needed = target.rate.bytes_in(test.stall);
    let severity = if needed > APP_BUFFER { Severity::Advice } else { Severity::Ok };
    let stall_ms = test.stall.as_secs_f64() * 1e3;
    let bridged = target.rate.time_for(APP_BUFFER).as_secs_f64() * 1e3;
    let arithmetic = format!("{} x {stall_ms:.0} ms = {needed} arrive during the longest stall", target.rate);
    let size = needed.get().div_ceil(1 << 20);
    Finding::new(severity, format!("{stall_ms:.0} ms"), USADAFOX)
        .needs(format!("{bridged:.0} ms, which {APP_BUFFER} bridge"), arithmetic)
        .fixed_by(
            Fix::command(format!("longhaul get --app-buffer {size}MiB URL"))
                .lasting_option("app-buffer", format_args!("{size}MiB")),
        )
}

fn free_space(free: Bytes, path: &Path, target: &Target) -> Finding {
    let minute = target.rate.bytes_in(std::time::Duration::from_secs(FREE_SECONDS));
    let severity = if free.get() == 0 {
        Severity::Problem
    } else if free < minute {
        Severity::Advice
    } else {
        Severity::Ok
    };
    let lasts = target.rate.time_for(free).as_secs_f64();
    let arithmetic = format!("{free} in {} / {} = {lasts:.0} s of the transfer", path.display(), target.rate);
    Finding::new(severity, free.to_string(), "statvfs(3)")
        .needs(format!("{minute}, or the file's size"), arithmetic)
        .counted(free.get(), minute.get(), "bytes")
        .fixed_by(elsewhere("with more room (df -h lists them), unless files here can be removed"))
}

fn alignment(direct_io: DirectIoFact) -> Finding {
    let source = "statx(2), STATX_DIOALIGN; open(2), O_DIRECT";
    let (severity, measured) = match direct_io {
        DirectIoFact::Aligned(align) if align <= LARGEST_ALIGNMENT => {
            (Severity::Ok, format!("in units of {align}"))
        }
        DirectIoFact::Aligned(align) => (Severity::Advice, format!("in units of {align}")),
        DirectIoFact::Impossible => (Severity::Advice, "none".to_owned()),
    };
    let arithmetic = match severity {
        Severity::Ok => "",
        _ => {
            "writes pass through the page cache: one more copy of each byte, and flushes that stall the receiver"
        }
    };
    Finding::new(severity, measured, source)
        .needs(format!("in units of {LARGEST_ALIGNMENT} at most"), arithmetic)
        .fixed_by(elsewhere("of a local file system with Direct I/O, as ext4 and XFS"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{judged, severity, sound_host, target};
    use super::super::{HostFacts, check};
    use super::*;

    fn tested(mib: u64, stall_ms: u64) -> impl Fn(&mut HostFacts) {
        let written = Bytes::mib(mib);
        let (took, stall) = (Duration::from_secs(1), Duration::from_millis(stall_ms));
        move |facts| facts.disk.write_test = Some(Ok(WriteTest { written, took, stall, direct: true }))
    }

    #[test]
    fn disk_below_the_rate_is_a_problem_and_one_without_a_test_is_not_judged() {
        let finding = judged("disk write rate", tested(500, 1));
        assert_eq!(finding.severity, Severity::Problem);
        assert_eq!(finding.arithmetic, "500 MiB in 1.00 s by Direct I/O in /data = 4.19 Gbit/s");
        let fix = finding.fix.unwrap();
        assert_eq!(fix.commands, ["longhaul get -o DIRECTORY/ URL"]);
        assert!(fix.note.contains("longhaul doctor --disk DIRECTORY measures"), "{fix:?}");
        assert_eq!(severity("disk write rate", tested(1300, 1)), Severity::Ok);
        let mut facts = sound_host();
        facts.disk.write_test = None;
        let diagnosis = check(&facts, &target());
        assert!(!diagnosis.findings.iter().any(|finding| finding.name.starts_with("disk")));
        assert!(diagnosis.unread.is_empty());
    }

    #[test]
    fn stall_longer_than_the_application_buffer_bridges_names_its_size() {
        assert_eq!(severity("disk stall", tested(2000, 53)), Severity::Ok);
        let finding = judged("disk stall", tested(2000, 200));
        assert_eq!(finding.severity, Severity::Advice);
        // 10 Gbit/s x 200 ms = 250 MB.
        let fix = finding.fix.unwrap();
        assert_eq!(fix.commands, ["longhaul get --app-buffer 239MiB URL"]);
        assert_eq!(fix.lasting.unwrap().lines, ["app-buffer = \"239MiB\""]);
    }

    #[test]
    fn free_space_and_direct_io_are_judged() {
        let judge = |bytes| severity("free space", |facts| facts.disk.free = Ok(Bytes::new(bytes)));
        let expected = [Severity::Ok, Severity::Advice, Severity::Problem];
        assert_eq!([75_000_000_000, 74_999_999_999, 0].map(judge), expected);
        use DirectIoFact::{Aligned, Impossible};
        let judge = |fact| severity("Direct I/O", move |facts| facts.disk.direct_io = Ok(fact));
        let expected = [Severity::Ok, Severity::Advice, Severity::Advice];
        assert_eq!([Aligned(Bytes::kib(4)), Aligned(Bytes::mib(1)), Impossible].map(judge), expected);
    }
}
