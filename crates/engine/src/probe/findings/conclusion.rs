//! Concludes a probe: the path's rate, the endpoint's ceiling, and what `get` remembers.

use longhaul_core::probe::flow_rate::{RateRange, ip_rate};
use longhaul_core::probe::report::{
    MeasuredRate, NEAR_CEILING, ProbeFacts, ProbeReport, RateEvidence, TcpRow,
};
use longhaul_core::probe::server_limits::ServerLimit;
use longhaul_core::probe::verdict::{Verdict, conclude};
use longhaul_core::tune::streams::Remembered;
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::host;

use super::Findings;
use crate::path_memory::{self, Endpoint, KnownPath};
use crate::probe::ProbeError;
use crate::probe::target::ProbeTarget;

/// Returns the bounds of a path's rate that bursts show as `rate`, unless a connection was steady:
/// flights that are too short for the burst rate show too low a one.
pub(in crate::probe) fn unsteady_path(rows: &[TcpRow], rate: Rate, mtu: Bytes) -> Option<RateRange> {
    let plain = || rows.iter().filter(|row| row.is_plain());
    let most = plain().filter_map(|row| row.range).map(|range| ip_rate(range.most_bps, mtu)).max();
    let is_steady = plain().any(|row| row.is_flat);
    most.filter(|_| !is_steady).map(|most| RateRange { least_bps: rate, most_bps: most.max(rate) })
}

impl Findings<'_> {
    /// Draws the conclusions, and stores the path for `get`; draws none from measurements cut short
    /// by a failure.
    pub(in crate::probe) fn conclude(mut self, failure: Option<&ProbeError>) -> ProbeReport {
        self.choose_rate();
        self.recognize_ceiling();
        if let Some(failure) = failure {
            self.report.missing.push(failure.to_string());
        }
        let is_cut = failure.is_some_and(ProbeError::cuts_measurements);
        if is_cut {
            self.withdraw_losses();
            self.report.server.limit = None;
            if let Some(found) = &mut self.report.path.rate {
                found.is_lower_bound = true;
            }
        }
        self.report.rtt.sort_by_key(|rtt| rtt.method);
        let size = self.options.size;
        let mut verdict = if is_cut {
            Verdict { streams: 1, size, ..Verdict::default() }
        } else {
            conclude(&self.report, host::tcp_rmem_max(), size)
        };
        verdict.remembered = self.remember(&verdict);
        ProbeReport {
            probe: ProbeFacts {
                target: self.report.probe.target,
                peer: self.address.to_string(),
                seconds: self.started.elapsed(),
                bytes: self.budget.used,
            },
            verdict,
            ..self.report
        }
    }

    /// Chooses the path's rate: the highest of all evidence, because a slow host can only lower a
    /// measured rate.
    fn choose_rate(&mut self) {
        /// TCP's evidence replaces that of trains, the finer measure, only if higher by this
        /// factor. A host too slow for trains also looks like a bottleneck; TCP moves many packets
        /// at a time and is less affected.
        const CLEARLY: f64 = 1.15;
        let mtu = self.mtu();
        let counts = |row: &&TcpRow| row.out_of_order == 0 || !self.is_filled_by_trains();
        let steady = self.report.tcp.iter().filter(counts).map(|row| row.payload_bps).max();
        let by_tcp = [(RateEvidence::TcpBursts, self.burst), (RateEvidence::TcpSteady, steady)];
        let (is_held, has_no_trains) = (self.has_reached_udp_ceiling(), self.report.path.rate.is_none());
        for (evidence, rate) in by_tcp {
            let Some(rate) = rate.filter(|rate| rate.as_bits_per_sec() > 0).map(|rate| ip_rate(rate, mtu))
            else {
                continue;
            };
            let known = self.report.path.rate.map_or(Rate::default(), |found| match found.evidence {
                // A lower bound does not measure the path.
                RateEvidence::UdpTrains if found.is_lower_bound => found.rate_bps,
                _ => found.rate_bps.scaled(CLEARLY),
            });
            if rate > known {
                // Without trains, a limit of the path cannot be distinguished from one of the
                // server.
                let is_lower_bound = is_held || (has_no_trains && evidence == RateEvidence::TcpSteady);
                let range = match evidence {
                    RateEvidence::TcpBursts => unsteady_path(&self.report.tcp, rate, mtu),
                    _ => None,
                };
                self.report.path.rate =
                    Some(MeasuredRate { rate_bps: rate, evidence, is_lower_bound, range });
            }
        }
    }

    fn has_reached_udp_ceiling(&self) -> bool {
        self.report.udp_ceiling.is_some_and(|ceiling| ceiling.is_reached)
    }

    /// Treats a rate near the endpoint's allowance as the endpoint's ceiling, not as the path's
    /// rate.
    fn recognize_ceiling(&mut self) {
        let Some(allowed) = self.report.server.allowed_bps else { return };
        let mtu = self.mtu();
        let is_near = |rate: Rate| rate >= allowed.scaled(NEAR_CEILING);
        let is_near_by_tcp = self.report.tcp.iter().any(|row| is_near(ip_rate(row.payload_bps, mtu)));
        let path = self.report.path.rate.as_mut().filter(|found| is_near_by_tcp || is_near(found.rate_bps));
        let upload = self.report.upload.as_mut().and_then(|upload| upload.rate.as_mut());
        let upload = upload.filter(|found| is_near(found.rate_bps));
        let is_met = is_near_by_tcp || path.is_some() || upload.is_some();
        for found in path.into_iter().chain(upload) {
            found.is_lower_bound = true;
        }
        if is_met {
            self.report.server.limit = Some(ServerLimit::Ceiling { rate: allowed });
        }
    }

    /// Stores the path in the path memory as a start for the next transfer; returns whether it was
    /// stored.
    fn remember(&mut self, verdict: &Verdict) -> bool {
        /// The initial application buffer of `get`.
        const APP_BUFFER: Bytes = Bytes::mib(64);
        let (ProbeTarget::Http(given) | ProbeTarget::Ftp(given)) = self.target else { return false };
        let url = self.moved.as_ref().unwrap_or(given);
        let Some(file) = &self.options.memory else { return false };
        // A lower bound would slow the next transfer.
        let is_capped = self.has_reached_udp_ceiling()
            || matches!(self.report.server.limit, Some(ServerLimit::Ceiling { .. }));
        let is_least = |found: MeasuredRate| {
            is_capped || (found.is_lower_bound && found.evidence == RateEvidence::UdpTrains)
        };
        if self.report.path.rate.is_some_and(is_least) {
            return false;
        }
        let (rtt, rate) = (self.report.min_rtt(), verdict.rate_bps);
        let (Some(rtt), Some(rate), Some(endpoint)) = (rtt, rate, Endpoint::of(url)) else {
            return false;
        };
        let found = Remembered { rtt, rate, streams: usize::try_from(verdict.streams).unwrap_or(1) };
        let window = verdict.window.unwrap_or_else(|| rate.bdp(rtt));
        let path = KnownPath::new(endpoint, found, APP_BUFFER, window);
        let path = if self.report.server.measures { path.paced() } else { path };
        let kept = path_memory::keep(file, path);
        if let Err(error) = &kept {
            self.report.missing.push(format!("nothing is remembered for get: {error}"));
        }
        kept.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use longhaul_core::failure::{Failure, FailureKind};
    use longhaul_core::probe::packet_train::LossShare;
    use longhaul_core::probe::report::{CeilingSource, UdpCeiling, UploadFindings};
    use longhaul_core::probe::rtt::{RttMethod, RttSummary};

    use crate::probe::tcp_flows::FlowResult;
    use crate::probe::{ProbeOptions, http};
    use crate::source::http::ClientConfig;

    use super::*;

    fn options() -> ProbeOptions {
        ProbeOptions {
            full: false,
            upload: false,
            ceiling: None,
            size: Bytes::gib(1),
            client: ClientConfig::default(),
            memory: None,
        }
    }

    const MBIT: fn(u64) -> Rate = |mbit| Rate::bits_per_sec(mbit * 1_000_000);

    /// Concludes from what `measure` has found on a path of 30 ms.
    fn conclude(
        options: &ProbeOptions,
        failure: Option<&ProbeError>,
        measure: impl FnOnce(&mut Findings<'_>),
    ) -> ProbeReport {
        let (target, address) = (ProbeTarget::parse("192.0.2.1").unwrap(), ([192, 0, 2, 1], 80).into());
        let mut findings = Findings::new(&target, address, Instant::now(), options, &|_| ());
        findings.report.rtt.extend(RttSummary::of(RttMethod::TcpHandshake, &[Duration::from_millis(30)], 1));
        measure(&mut findings);
        findings.conclude(failure)
    }

    #[test]
    fn rate_of_trains_at_the_ceiling_is_a_lower_bound_that_is_not_remembered() {
        let place = tempfile::tempdir().unwrap();
        let memory = place.path().join("paths.json");
        let options = ProbeOptions { memory: Some(memory.clone()), ceiling: Some(MBIT(100)), ..options() };
        // TCP may be held by the server, and nothing else shows what the path carries.
        let cases = [(98, false, None), (98, false, Some(MBIT(300))), (60, true, None)];
        for (rate, is_path_limited, tcp) in cases {
            let found = conclude(&options, None, |findings| {
                findings.report.udp_ceiling =
                    Some(UdpCeiling::lower(options.ceiling, MBIT(40_000), CeilingSource::Server));
                findings.take_train_rate(MBIT(rate), is_path_limited);
                let row =
                    |payload_bps| TcpRow { streams: 4, payload_bps, is_flat: true, ..TcpRow::default() };
                findings.report.tcp.extend(tcp.map(row));
            });
            let is_bounded = (found.udp_ceiling.unwrap().is_reached, found.path.rate.unwrap().is_lower_bound);
            let is_kept = (found.verdict.remembered, memory.exists());
            let (expected, kept) = ((!is_path_limited, !is_path_limited), (is_path_limited, is_path_limited));
            assert_eq!((is_bounded, is_kept), (expected, kept), "{rate}, {tcp:?}");
        }
    }

    #[test]
    fn probe_fails_if_none_of_its_measurements_finds_a_rate() {
        for (measured, fails) in [(false, true), (true, false)] {
            conclude(&options(), None, |findings| {
                assert!(findings.unmeasured().is_none());
                http::take(findings, &FlowResult::default(), 1);
                findings.report.upload = measured.then(UploadFindings::default);
                let failure = findings.unmeasured();
                assert_eq!(failure.is_some(), fails);
                if let Some(failure) = failure {
                    let text = failure.to_string();
                    assert!(text.contains("192.0.2.1") && text.contains("TCP with 1 connections"), "{text}");
                    assert_eq!(failure.kind(), FailureKind::Temporary);
                }
            });
        }
    }

    #[test]
    fn interrupted_measurements_yield_no_conclusion() {
        let conclude_after = |failure| {
            conclude(&options(), failure, |findings| {
                findings.report.path.loss = Some(LossShare::new(10_000, 3000));
                findings.report.path.rate =
                    Some(MeasuredRate::new(MBIT(100), RateEvidence::UdpTrains, false));
            })
        };
        let whole = conclude_after(None);
        assert!(whole.verdict.advice.iter().any(|line| line.contains("faulty link")), "{whole:?}");
        let failure = ProbeError::from(Failure::new(FailureKind::Temporary, "http://h/ sent too little"));
        let cut = conclude_after(Some(&failure));
        assert!(cut.verdict.advice.is_empty() && cut.verdict.rate_bps.is_none(), "{cut:?}");
        assert!(cut.path.loss.is_none() && cut.path.rate.unwrap().is_lower_bound, "{cut:?}");
        assert_eq!(cut.missing, [failure.to_string()]);
    }
}
