//! Options of TCP.

use super::Diagnosis;
use super::ceiling::UNSCALED_WINDOW;
use super::facts::{HostFacts, Reading};
use super::finding::{Finding, Fix, Severity};
use super::target::Target;
use crate::buffer_plan::window_ceiling;

/// Bytes after which a sequence number returns to an acceptable value (RFC 7323, section 5.4:
/// 2^31).
const SEQUENCE_HALF: f64 = 2_147_483_648.0;
/// How long a segment may live in the network (RFC 9293, section 3.4.2: MSL of 2 minutes), in
/// seconds.
const SEGMENT_LIFETIME: f64 = 120.0;
/// Bytes of IPv4 and TCP headers with timestamps (RFC 791, RFC 9293, RFC 7323: 20 + 20 + 12).
const HEADERS: u32 = 52;
/// The MTU of Ethernet, where that of the device is unknown.
const ETHERNET_MTU: u32 = 1500;

pub(super) fn check(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    window_scaling(&facts.tcp.window_scaling, target, report);
    loss_recovery(facts, target, report);
    slow_start(facts, target, report);
    mtu_probing(facts, report);
}

/// Makes a finding of a setting that is to be `wanted`.
fn switch(setting: &str, on: bool, wanted: bool, bad: Severity, source: &'static str) -> Finding {
    let text = |on| if on { "on" } else { "off" };
    let severity = if on == wanted { Severity::Ok } else { bad };
    Finding::new(severity, text(on), source)
        .needs(text(wanted), "")
        .fixed_by(Fix::sysctl(setting, u8::from(wanted).to_string()))
}

fn window_scaling(reading: &Reading<bool>, target: &Target, report: &mut Diagnosis) {
    let would_show = "whether windows can exceed 64 KiB";
    report.judge(reading, "window scaling", would_show, |on| {
        let setting = "net.ipv4.tcp_window_scaling";
        let finding = switch(setting, *on, true, Severity::Problem, "RFC 7323, section 2");
        let arithmetic = format!(
            "without it a window is {} B at most: {} B / {} = {}",
            UNSCALED_WINDOW.get(),
            UNSCALED_WINDOW.get(),
            target.rtt,
            window_ceiling(UNSCALED_WINDOW, target.rtt)
        );
        Finding { arithmetic, ..finding }
    });
}

fn loss_recovery(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    let would_show = "whether several losses in a window are repaired in one round trip";
    report.judge(&facts.tcp.sack, "SACK", would_show, |on| {
        let finding = switch("net.ipv4.tcp_sack", *on, true, Severity::Problem, "RFC 2018; RFC 6675");
        let arithmetic =
            format!("without it one lost packet a round trip is repaired: {} for each loss", target.rtt);
        Finding { arithmetic, ..finding }
    });
    let would_show = "whether old segments are told from new ones after the sequence numbers wrap";
    report.judge(&facts.tcp.timestamps, "timestamps", would_show, |on| {
        let wrap = SEQUENCE_HALF * 8.0 / (target.rate.as_bits_per_sec().max(1)) as f64;
        let bad = if wrap < SEGMENT_LIFETIME { Severity::Problem } else { Severity::Advice };
        let finding =
            switch("net.ipv4.tcp_timestamps", *on, true, bad, "RFC 7323, sections 4 and 5");
        let arithmetic = format!(
            "sequence numbers become ambiguous every 2^31 B / {} = {wrap:.1} s; a segment may live {SEGMENT_LIFETIME} s",
            target.rate
        );
        Finding { arithmetic, ..finding }
    });
}

fn slow_start(facts: &HostFacts, target: &Target, report: &mut Diagnosis) {
    let would_show = "whether a connection starts anew after a pause";
    report.judge(&facts.tcp.slow_start_after_idle, "slow start after idle", would_show, |on| {
        let setting = "net.ipv4.tcp_slow_start_after_idle";
        let source = "kernel documentation, networking/ip-sysctl; RFC 5681, section 4.1";
        let finding = switch(setting, *on, false, Severity::Advice, source);
        // From the initial window of ten segments (RFC 6928), doubled each round trip.
        let initial = 10.0 * facts.segment() as f64;
        let doublings = (target.window().get() as f64 / initial).max(1.0).log2().ceil();
        let lost = doublings * target.rtt.get().as_secs_f64();
        let arithmetic = format!(
            "after a pause a sender needs log2({} / 10 segments) = {doublings} round trips = {lost:.1} s to fill the path",
            target.window()
        );
        Finding { arithmetic, ..finding }
    });
}

fn mtu(facts: &HostFacts) -> u32 {
    facts.device.as_ref().ok().and_then(|device| device.mtu.clone().ok()).unwrap_or(ETHERNET_MTU)
}

impl HostFacts {
    /// Returns the payload of a full segment, in bytes.
    pub(super) fn segment(&self) -> u64 {
        u64::from(mtu(self).saturating_sub(HEADERS).max(1))
    }
}

fn mtu_probing(facts: &HostFacts, report: &mut Diagnosis) {
    let would_show = "whether TCP recovers where routers drop large packets without an ICMP message";
    report.judge(&facts.tcp.mtu_probing, "MTU probing", would_show, |mode| {
        let is_loopback = facts.device.as_ref().is_ok_and(|device| device.is_loopback);
        let jumbo = mtu(facts) > ETHERNET_MTU && !is_loopback;
        let severity = if *mode == 0 && jumbo { Severity::Advice } else { Severity::Ok };
        let names = ["off", "after a black hole", "always"];
        let name =
            |mode: u8| names.get(usize::from(mode)).map_or_else(|| mode.to_string(), |name| (*name).into());
        let needed = if jumbo { "after a black hole (1)" } else { "off suffices" };
        let source = "kernel documentation, networking/ip-sysctl; RFC 4821";
        Finding::new(severity, name(*mode), source)
            .needs(needed, format!("MTU {} against the {ETHERNET_MTU} of most paths", mtu(facts)))
            .fixed_by(Fix::sysctl("net.ipv4.tcp_mtu_probing", "1"))
    });
}

#[cfg(test)]
mod tests {
    use super::super::tests::{judged, judged_for, severity, target_of};
    use super::*;

    #[test]
    fn options_that_slow_a_stream_are_changed() {
        let off = [
            judged("window scaling", |facts| facts.tcp.window_scaling = Ok(false)),
            judged("SACK", |facts| facts.tcp.sack = Ok(false)),
            judged("timestamps", |facts| facts.tcp.timestamps = Ok(false)),
        ];
        for (finding, setting) in off.iter().zip(["tcp_window_scaling", "tcp_sack", "tcp_timestamps"]) {
            assert_eq!(finding.severity, Severity::Problem, "{finding:?}");
            assert_eq!(finding.fix.as_ref().unwrap().commands, [format!("sysctl -w net.ipv4.{setting}=1")]);
        }
        assert!(off[0].arithmetic.contains("65535 B / 200 ms = 2.62 Mbit/s"), "{}", off[0].arithmetic);
        assert!(off[2].arithmetic.contains("= 1.7 s"), "{}", off[2].arithmetic);
        // At 100 Mbit/s, numbers do not wrap in time.
        let slow = judged_for(&target_of(100), "timestamps", |facts| facts.tcp.timestamps = Ok(false));
        assert_eq!(slow.severity, Severity::Advice);
        let finding = judged("slow start after idle", |facts| facts.tcp.slow_start_after_idle = Ok(true));
        assert_eq!((finding.severity, finding.needed.as_str()), (Severity::Advice, "off"));
        // 250 MB / (10 x 8948 B) = 2794, 12 doublings.
        assert!(finding.arithmetic.contains("= 12 round trips = 2.4 s"), "{}", finding.arithmetic);
    }

    #[test]
    fn mtu_probing_is_asked_for_with_jumbo_frames_only() {
        for (mtu, is_loopback, expected) in
            [(9000, false, Severity::Advice), (1500, false, Severity::Ok), (65_536, true, Severity::Ok)]
        {
            let judged = severity("MTU probing", |facts| {
                facts.tcp.mtu_probing = Ok(0);
                let device = facts.device.as_mut().unwrap();
                (device.mtu, device.is_loopback) = (Ok(mtu), is_loopback);
            });
            assert_eq!(judged, expected, "{mtu}");
        }
        assert_eq!(judged("MTU probing", |facts| facts.tcp.mtu_probing = Ok(7)).measured, "7");
    }
}
