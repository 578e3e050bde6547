//! Collects the measurements of a probe.

mod conclusion;

use std::net::SocketAddr;
use std::time::Instant;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::report::{MeasuredRate, ProbeFacts, ProbeReport, RateEvidence};
use longhaul_core::probe::server_limits::find_limit;
use longhaul_core::units::{Bytes, Rate, Rtt};
use url::Url;

pub(super) use conclusion::unsteady_path;

use crate::source::http::SafeUrl;

use super::budget::Budget;
use super::target::ProbeTarget;
use super::{ProbeError, ProbeOptions};

/// The state of a probe.
pub(super) struct Findings<'a> {
    target: &'a ProbeTarget,
    pub(super) options: &'a ProbeOptions,
    progress: &'a dyn Fn(&str),
    pub(super) address: SocketAddr,
    /// The URL on another host that the target redirected to.
    moved: Option<Url>,
    started: Instant,
    pub(super) budget: Budget,
    /// The results so far.
    pub(super) report: ProbeReport,
    /// The first measurement of a rate that ended without one, and the reason.
    without_rate: Option<String>,
    /// The highest payload rate within bursts of single TCP connections.
    pub(super) burst: Option<Rate>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(
        target: &'a ProbeTarget,
        address: SocketAddr,
        started: Instant,
        options: &'a ProbeOptions,
        progress: &'a dyn Fn(&str),
    ) -> Self {
        Self {
            target,
            options,
            progress,
            address,
            moved: None,
            started,
            budget: Budget::new(started, options.full),
            report: ProbeReport {
                probe: ProbeFacts { target: SafeUrl::of(target.url()).to_string(), ..ProbeFacts::default() },
                ..ProbeReport::default()
            },
            without_rate: None,
            burst: None,
        }
    }

    /// Reports the next measurement to the user.
    pub(super) fn begin(&self, what: &str) {
        (self.progress)(what);
    }

    /// Measures the host of `url` at `address` from now on, because the target redirects to it.
    pub(super) fn move_to(&mut self, url: &Url, address: SocketAddr) {
        let to = SafeUrl::of(url);
        self.miss(format!("the path to {}: it redirects to {to}, whose server was measured", self.address));
        self.address = address;
        self.moved = Some(url.clone());
        self.report.rtt.clear();
    }

    /// Records what could not be measured, and why.
    pub(super) fn miss(&mut self, why: impl Into<String>) {
        self.report.missing.push(why.into());
    }

    /// Records a measurement that was to find a rate and did not, and why.
    pub(super) fn miss_rate(&mut self, why: String) {
        self.without_rate.get_or_insert_with(|| why.clone());
        self.miss(why);
    }

    /// Returns the failure of a probe that was to find a rate and has found none.
    pub(super) fn unmeasured(&self) -> Option<ProbeError> {
        let has_none =
            self.report.tcp.is_empty() && self.report.path.rate.is_none() && self.report.upload.is_none();
        let why = self.without_rate.clone().filter(|_| has_none)?;
        let at = &self.report.probe.target;
        let message = format!(
            "no rate was measured at {at}: {why}; try again when the server and the path are less busy"
        );
        Some(Failure::new(FailureKind::Temporary, message).into())
    }

    /// Returns the RTT without queues; zero if no method has measured it.
    pub(super) fn min_rtt(&self) -> Rtt {
        self.report.min_rtt().unwrap_or_default()
    }

    pub(super) fn mtu(&self) -> Bytes {
        self.report.mtu()
    }

    /// Finds the limit of the connections measured so far; `window` is the largest that one
    /// connection advertised.
    pub(super) fn compare(&mut self, window: Option<Bytes>) {
        self.report.server.limit = find_limit(&self.report, window);
    }

    /// Records the rate within the bursts of one connection.
    pub(super) fn take_burst(&mut self, burst: Option<Rate>, out_of_order: u64) {
        // Bytes queued behind a lost packet are read at once after its retransmission, faster than
        // any path.
        if out_of_order == 0 || !self.is_filled_by_trains() {
            self.burst = self.burst.max(burst);
        }
    }

    /// Returns whether trains arrived clearly slower than they were sent, which means that the path
    /// set their rate.
    fn is_filled_by_trains(&self) -> bool {
        self.report
            .path
            .rate
            .is_some_and(|found| found.evidence == RateEvidence::UdpTrains && !found.is_lower_bound)
    }

    /// Records the rate that trains found: near the ceiling of UDP it is a lower bound.
    pub(super) fn take_train_rate(&mut self, rate_bps: Rate, is_path_limited: bool) {
        let mut is_lower_bound = !is_path_limited;
        if let Some(ceiling) = &mut self.report.udp_ceiling {
            ceiling.is_reached = ceiling.limits(rate_bps);
            is_lower_bound |= ceiling.is_reached;
        }
        let evidence = RateEvidence::UdpTrains;
        self.report.path.rate = Some(MeasuredRate::new(rate_bps, evidence, is_lower_bound));
    }

    /// Records the rate that the endpoint allows this client now.
    pub(super) fn allow(&mut self, allowed: Option<Rate>) {
        let known = self.report.server.allowed_bps;
        self.report.server.allowed_bps = known.into_iter().chain(allowed).min();
    }

    /// Withdraws loss, reordering and queue after a failure: packets that were never sent look
    /// lost.
    pub(super) fn withdraw_losses(&mut self) {
        self.report.path.loss = None;
        self.report.path.reordered = None;
        self.report.path.queue = None;
    }
}
