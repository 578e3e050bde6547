//! Limits of socket buffers against the bandwidth-delay product.

use super::Diagnosis;
use super::facts::{AutotuneLimits, HostFacts, TcpMemory};
use super::finding::{Finding, Fix, Severity};
use super::target::{PayloadShare, Target, needed_buffers};
use crate::buffer_plan::LARGEST_WINDOW;
use crate::units::Bytes;

const IP_SYSCTL: &str = "kernel documentation, networking/ip-sysctl; RFC 7323, section 1.1";
const SOCKET_MANUAL: &str = "socket(7); ESnet fasterdata, Linux host tuning";

pub(super) fn check(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    let [receive, send] = needed_buffers(facts, target);
    let buffers = &facts.buffers;
    report.judge(
        &buffers.tcp_rmem,
        "tcp_rmem",
        "how large the kernel lets a receive window grow",
        |limits| autotuning("tcp_rmem", *limits, receive, PayloadShare::receiving(facts), target),
    );
    report.judge(
        &buffers.tcp_wmem,
        "tcp_wmem",
        "how much the kernel lets a sender have in flight",
        |limits| autotuning("tcp_wmem", *limits, send, PayloadShare::sending(), target),
    );
    let would_show = "what programs that set SO_RCVBUF themselves can have";
    report.judge(&buffers.rmem_max, "rmem_max", would_show, |max| option_limit("rmem_max", *max, target));
    let would_show = "what programs that set SO_SNDBUF themselves can have";
    report.judge(&buffers.wmem_max, "wmem_max", would_show, |max| option_limit("wmem_max", *max, target));
    let would_show = "whether the memory of all TCP sockets bounds the buffers of one";
    report.judge(&buffers.tcp_mem, "tcp_mem", would_show, |memory| tcp_memory(*memory, receive.max(send)));
    if target.bdp() > LARGEST_WINDOW {
        report.push("window limit", larger_than_a_window(target));
    }
}

/// Judges the third value of `tcp_rmem` or `tcp_wmem`.
fn autotuning(
    name: &'static str,
    limits: AutotuneLimits,
    needed: Bytes,
    share: PayloadShare,
    target: &Target,
) -> Finding {
    let severity = if limits.max >= needed {
        Severity::Ok
    } else if share.may_hold(limits.max, target.window()) {
        Severity::Advice
    } else {
        Severity::Problem
    };
    let bound = if target.bdp() > LARGEST_WINDOW { ", of which a window is 1 GiB at most" } else { "" };
    let arithmetic = format!("{}{bound}; {} ({}) = {needed}", target.product(), share.factor(), share.why);
    let value = format!("{} {} {}", limits.min.get(), limits.default.get(), needed.get());
    Finding::new(severity, limits.max.to_string(), IP_SYSCTL)
        .needs(needed.to_string(), arithmetic)
        .counted(limits.max.get(), needed.get(), "bytes")
        .fixed_by(Fix::sysctl(&format!("net.ipv4.{name}"), value))
}

/// Judges `rmem_max` or `wmem_max`.
///
/// Advice only: programs that leave the buffers to the kernel are not bound by them.
fn option_limit(name: &'static str, max: Bytes, target: &Target) -> Finding {
    let needed = target.window();
    let severity = if max < needed { Severity::Advice } else { Severity::Ok };
    let arithmetic = format!(
        "{}; setsockopt(2) doubles it. It bounds only programs that set their buffers",
        target.product()
    );
    Finding::new(severity, max.to_string(), SOCKET_MANUAL)
        .needs(needed.to_string(), arithmetic)
        .counted(max.get(), needed.get(), "bytes")
        .fixed_by(Fix::sysctl(&format!("net.core.{name}"), needed.get().to_string()))
}

/// Judges `tcp_mem`: from `pressure` on, the kernel no longer opens windows.
fn tcp_memory(memory: TcpMemory, needed: Bytes) -> Finding {
    let page = memory.page.get().max(1);
    let pages = needed.get().div_ceil(page);
    let severity = if memory.pressure < pages { Severity::Problem } else { Severity::Ok };
    // The kernel's own ratios (tcp_init_mem): low = 3/4 of pressure, limit = twice low.
    let low = (pages - pages / 4).max(memory.low);
    let limit = (2 * low).max(memory.limit);
    let measured =
        format!("{} pages ({})", memory.pressure, Bytes::new(memory.pressure.saturating_mul(page)));
    Finding::new(severity, measured, "kernel documentation, networking/ip-sysctl")
        .needs(
            format!("{pages} pages"),
            format!("one full buffer: {needed} / {} a page, below the mark of memory pressure", memory.page),
        )
        .counted(memory.pressure, pages, "pages")
        .fixed_by(Fix::sysctl("net.ipv4.tcp_mem", format!("{low} {pages} {limit}")))
}

/// Says how many streams a path needs that holds more than the largest window.
fn larger_than_a_window(target: &Target) -> Finding {
    let streams = target.bdp().get().div_ceil(LARGEST_WINDOW.get());
    let arithmetic = format!(
        "{}; / {LARGEST_WINDOW}, the largest window of TCP, = {streams} streams at least",
        target.product()
    );
    Finding::new(Severity::Advice, "1 stream", "RFC 7323, section 2.3")
        .needs(format!("{streams} streams"), arithmetic)
        .counted(1, streams, "streams")
        .fixed_by(
            Fix::command(format!("longhaul get --streams {streams} URL")).lasting_option("streams", streams),
        )
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::tests::{judged, judged_for, sound_host, target, target_of};
    use super::*;

    #[test]
    fn autotuning_below_twice_the_bdp_is_advice_or_a_problem_with_the_exact_fix() {
        for name in ["tcp_rmem", "tcp_wmem"] {
            let judge = |max: u64| {
                let (min, default, max) = (Bytes::kib(4), Bytes::kib(16), Bytes::new(max));
                let limits = Ok(AutotuneLimits { min, default, max });
                judged(name, |facts| {
                    (facts.buffers.tcp_rmem, facts.buffers.tcp_wmem) = (limits.clone(), limits);
                })
            };
            assert_eq!(judge(500_000_000).severity, Severity::Ok);
            assert_eq!(judge(499_999_999).severity, Severity::Advice);
            let short = judge(374_999_999);
            assert_eq!((short.severity, short.quantity.unwrap().needed), (Severity::Problem, 500_000_000));
            let expected = format!("sysctl -w net.ipv4.{name}=\"4096 16384 500000000\"");
            assert_eq!(short.fix.unwrap().commands, [expected]);
            assert!(short.arithmetic.starts_with("10.0 Gbit/s x 200 ms = 238.4 MiB; x 2 ("));
        }
    }

    #[test]
    fn limits_of_set_buffers_are_advice_below_the_bdp() {
        for name in ["rmem_max", "wmem_max"] {
            let judge = |bytes: u64| {
                let limit = Ok(Bytes::new(bytes));
                judged(name, |facts| {
                    (facts.buffers.rmem_max, facts.buffers.wmem_max) = (limit.clone(), limit)
                })
            };
            assert_eq!(judge(250_000_000).severity, Severity::Ok);
            let short = judge(249_999_999);
            let change = &short.fix.as_ref().unwrap().changes[0];
            assert_eq!((short.severity, change.value.as_str()), (Severity::Advice, "250000000"));
            assert_eq!(change.name, format!("net.core.{name}"));
        }
    }

    #[test]
    fn tcp_memory_must_hold_a_full_buffer_and_never_shrinks() {
        let judge = |pressure: u64| {
            let memory = TcpMemory { low: 1000, pressure, limit: 1_000_000, page: Bytes::kib(4) };
            judged("tcp_mem", |facts| facts.buffers.tcp_mem = Ok(memory))
        };
        // 500 MB / 4096.
        assert_eq!(judge(122_071).severity, Severity::Ok);
        let short = judge(122_070);
        assert_eq!(short.severity, Severity::Problem);
        assert_eq!(short.fix.unwrap().changes[0].value, "91554 122071 1000000");
    }

    #[test]
    fn path_that_holds_more_than_a_window_needs_streams() {
        let fast = target_of(100_000);
        let limit = judged_for(&fast, "window limit", |_| ());
        assert_eq!(limit.quantity.unwrap().needed, 3);
        assert_eq!(limit.fix.unwrap().lasting.unwrap().lines, ["streams = \"3\""]);
        assert_eq!(judged_for(&fast, "tcp_rmem", |_| ()).quantity.unwrap().needed, 2_147_483_647);
        assert!(!check(&sound_host(), &target()).findings.iter().any(|found| found.name == "window limit"));
    }
}
