//! TCP streams of the measurement endpoint, and echoes beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::probe::flow_rate::ip_rate;
use longhaul_core::probe::packet_train::{Dispersion, usual_longest_delay};
use longhaul_core::probe::report::MeasuredQueue;
use longhaul_core::units::{Bytes, Rtt};
use url::Url;

use super::udp_trains::LOSS_TIME;
use crate::probe::findings::Findings;
use crate::probe::http::SEVERAL;
use crate::probe::tcp_flows::{FlowPlan, FlowResult};
use crate::probe::udp_session::{Echoes, UdpSession};

/// The interval of echoes beside a TCP connection.
const LOADED_INTERVAL: Duration = Duration::from_millis(5);
/// The share of the budget that is left for a single connection.
const ONE_SHARE: f64 = 0.6;
/// The share of the budget for a single connection where the trains were slower than the path:
/// loss, queue and the table by message size, which follow it, take a third.
const FAST_SHARE: f64 = 0.35;
/// The share of the remaining budget for several connections; the rest is for the upload.
const SEVERAL_SHARE: f64 = 0.5;
/// The fewest bytes that show a rate: a tenth of a second of 10 Mbit/s.
const MIN_BYTES: Bytes = Bytes::kib(128);

/// Makes the plans of streams from the endpoint.
pub(super) struct StreamPlans {
    pub(super) url: Url,
    /// The most bytes of one stream.
    pub(super) most: Bytes,
}

impl StreamPlans {
    /// Plans one stream, by what the trains have found.
    pub(super) fn single(&self, findings: &Findings<'_>, trains: Option<Dispersion>) -> FlowPlan {
        match trains {
            Some(found) if found.is_path_limited() => self.plan(findings, 1, ONE_SHARE),
            found => self.filling(findings, found.is_some()),
        }
    }

    /// Plans several streams.
    pub(super) fn several(&self, findings: &Findings<'_>) -> FlowPlan {
        self.plan(findings, SEVERAL, SEVERAL_SHARE)
    }

    /// Plans so many streams with a share of what the budget has left.
    pub(super) fn plan(&self, findings: &Findings<'_>, streams: u32, share: f64) -> FlowPlan {
        let left = findings.budget.bytes_left().unwrap_or(self.most);
        let bytes = Bytes::new((left.get() as f64 * share) as u64).clamp(MIN_BYTES, self.most.max(MIN_BYTES));
        FlowPlan { bytes, ..FlowPlan::new(findings, self.of(bytes), streams) }
    }

    /// Plans one stream over a path of unknown rate: as much as the rate that it supports allows.
    fn filling(&self, findings: &Findings<'_>, losses_follow: bool) -> FlowPlan {
        let left = findings.budget.time_left();
        let (time, share) = match losses_follow {
            true => (left.saturating_sub(LOSS_TIME), FAST_SHARE),
            false => (left / 2, ONE_SHARE),
        };
        let filling = Some(findings.budget.filling_time(share));
        FlowPlan { time, bytes: MIN_BYTES, filling, ..FlowPlan::new(findings, self.of(self.most), 1) }
    }

    /// Returns the URL of a stream of so many bytes.
    fn of(&self, bytes: Bytes) -> Url {
        let mut url = self.url.clone();
        url.set_query(Some(&format!("bytes={}", bytes.get())));
        url
    }
}

/// Runs a measurement, and echoes beside it where there is a session.
pub(super) fn beside_echoes(
    session: Option<&mut UdpSession>,
    run: impl FnOnce() -> FlowResult + Send,
) -> (FlowResult, Echoes) {
    let Some(session) = session else { return (run(), Echoes::default()) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flows = scope.spawn(|| {
            let result = run();
            done.store(true, Ordering::Relaxed);
            result
        });
        let goes_on = || !done.load(Ordering::Relaxed);
        let echoes = session.echoes(LOADED_INTERVAL, &goes_on).unwrap_or_else(|error| {
            tracing::debug!("echoes beside TCP failed: {error}");
            Echoes::default()
        });
        (flows.join().unwrap_or_default(), echoes)
    })
}

/// Records the RTT of echoes beside a TCP connection, and the queue that it kept filled.
pub(super) fn record_loaded_rtt(
    findings: &mut Findings<'_>,
    one: &FlowResult,
    idle: Option<&Echoes>,
    loaded: Echoes,
) {
    let Some(longest) = loaded.round_trips.iter().max() else { return };
    findings.report.path.loaded_rtt = Some(Rtt::new(*longest));
    let mut returns = loaded.returns;
    // The least one-way delay is that of the idle path.
    returns.extend(idle.iter().flat_map(|idle| idle.returns.iter().copied()));
    let waited = usual_longest_delay(&returns);
    let rate = findings.burst.map(|burst| ip_rate(burst, findings.mtu()));
    // Trains measure the queue more exactly; TCP's measure is for paths that trains cannot fill.
    if let (None, Some(rate)) = (findings.report.path.queue, rate)
        && !waited.is_zero()
    {
        let is_lower_bound = one.out_of_order == 0;
        findings.report.path.queue =
            Some(MeasuredQueue { bytes: rate.bytes_in(waited), delay: waited, is_lower_bound });
    }
}
