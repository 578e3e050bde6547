//! Beside flows that fill the queue by their windows.

use super::*;

#[test]
fn pause_beside_competing_flows_does_not_lower_the_pace() {
    let mut path = SimulatedPath::new(1000.0, 100, 12e6);
    let mut pacer = Some(Pacer::default());
    path.run(&mut pacer, 4.0);
    pacer.as_mut().unwrap().enter(PacerPhase::Share, None);
    path.run(&mut pacer, 4.2);
    pacer.as_mut().unwrap().resume();
    path.now += Duration::from_secs(60);
    let mut least = f64::INFINITY;
    for _ in 0..300 {
        let until = path.now.as_secs_f64() + 0.01;
        path.run(&mut pacer, until);
        let pace = pacer.as_ref().unwrap().pace.map_or(f64::INFINITY, |pace| pace.as_bits_per_sec() as f64);
        least = least.min(pace);
    }
    assert!(least > 2e8, "{least} bit/s");
    // No other flow is left: the connection is paced again.
    path.run(&mut pacer, 90.0);
    let phase = pacer.unwrap().phase;
    assert!(matches!(phase, PacerPhase::Cruise { .. }), "{phase:?}");
}

/// A path of which only the queue matters: other flows fill it, and it does not drain after a cut.
struct Filled {
    pacer: Pacer,
    now: Duration,
    seen: Observation,
}

impl Filled {
    /// Starts at 80 % of 250 Mbit/s over 100 ms, without other flows.
    fn new() -> Self {
        let rate = Rate::bits_per_sec(200_000_000);
        let rtt = Rtt::new(Duration::from_millis(100));
        let seen = Observation {
            goodput: Bytes::ZERO,
            window: Bytes::mib(20),
            in_flight: Bytes::ZERO,
            rtt,
            min_rtt: rtt,
            sent: Bytes::ZERO,
            retransmits: Bytes::ZERO,
        };
        let mut pacer = Pacer { capacity: Rate::bits_per_sec(250_000_000), seen, ..Pacer::default() };
        pacer.settle(rate);
        let mut filled = Self { pacer, now: Duration::ZERO, seen };
        filled.run(0.15, |_| 0.0);
        assert!(matches!(filled.pacer.phase, PacerPhase::Cruise { .. }), "{:?}", filled.pacer.phase);
        filled
    }

    /// Observes for `seconds`, or until the pacer shares the path, with a queue of `queue` ms; returns the time taken.
    fn run(&mut self, seconds: f64, queue: impl Fn(f64) -> f64) -> f64 {
        let from = self.now;
        let since = |now: Duration| (now - from).as_secs_f64();
        while since(self.now) < seconds && !matches!(self.pacer.phase, PacerPhase::Share) {
            self.observe(queue(since(self.now)));
        }
        since(self.now)
    }

    fn observe(&mut self, queue: f64) {
        let step = Duration::from_millis(3);
        self.now += step;
        let pace = self.pacer.observe(&self.seen, self.now).unwrap_or_default();
        self.seen.goodput += pace.bdp(Rtt::new(step));
        self.seen.sent += pace.bdp(Rtt::new(step));
        self.seen.rtt = Rtt::new(self.seen.min_rtt.get() + Duration::from_secs_f64(queue / 1e3));
    }
}

#[test]
fn oscillating_queue_is_shared_as_soon_as_a_standing_one() {
    let stands = Filled::new().run(10.0, |_| 80.0);
    let sways = Filled::new().run(10.0, |t| 80.0 + 20.0 * (t * 10.0).sin());
    assert!(stands < 0.8 && sways < 1.2, "after {stands} and {sways} s");
}

/// Observes a shared path for two seconds, with every `nth` RTT 12 ms longer; returns the phase after Share, `None` if Share does not end.
fn phase_after_sharing(nth: usize) -> Option<PacerPhase> {
    let mut filled = Filled::new();
    filled.pacer.enter(PacerPhase::Share, None);
    (0..667).find_map(|step| {
        filled.seen.goodput += Bytes::kib(64);
        filled.observe(if step % nth == 0 { 12.0 } else { 0.5 });
        Some(&filled.pacer.phase).filter(|phase| !matches!(phase, PacerPhase::Share)).cloned()
    })
}

#[test]
fn sharing_ends_where_jitter_alone_is_left() {
    let after = phase_after_sharing(20);
    assert!(matches!(after, Some(PacerPhase::Climb { .. })), "{after:?}");
    let after = phase_after_sharing(4);
    assert!(after.is_none(), "{after:?}");
}
