//! The automatic pace against a simulated sender and bottleneck in virtual time.

use super::*;
use crate::{QueueLimit, TrafficSpec};

impl PacedSender {
    /// Uses another congestion control than the cross flows.
    pub(in crate::model) fn under(mut self, algorithm: CongestionAlgorithm) -> Self {
        self.network.set_congestion(self.download, algorithm);
        self
    }

    /// Runs until `end` after the start; returns the counts of this run.
    pub(in crate::model) fn run_until(&mut self, end: Duration) -> PacketCounts {
        let before = self.counts();
        while self.now() < end {
            self.step(end - self.now());
        }
        self.counts() - before
    }
}

/// Stalls of a host that make the smoothed RTT longer for a while.
struct RttStalls {
    random: ChaCha8Rng,
    /// How much longer the RTT is now.
    excess: Duration,
}

impl RttStalls {
    /// The mean time between two stalls, and the time after which the smoothed RTT contains little
    /// of one.
    const INTERVAL: Duration = Duration::from_millis(100);
    /// Maximum added to the RTT by one.
    const LONGEST: Duration = Duration::from_millis(5);

    /// Returns what is added to the RTT, `time` after the last call.
    fn after(&mut self, time: Duration) -> Duration {
        let intervals = time.as_secs_f64() / Self::INTERVAL.as_secs_f64();
        if self.random.random_bool(intervals.min(1.0)) {
            self.excess += Self::LONGEST.mul_f64(self.random.random());
        }
        self.excess = self.excess.mul_f64((-intervals).exp());
        self.excess
    }
}

/// Runs like [`PacedSender::run_until`], on a host whose stalls make the smoothed RTT longer ten
/// times a second.
fn run_with_stalls(sender: &mut PacedSender, end: Duration, seed: u64) -> PacketCounts {
    let mut stalls = RttStalls { random: ChaCha8Rng::seed_from_u64(seed), excess: Duration::ZERO };
    while sender.now() < end {
        let begun = sender.now();
        let seen = sender.run_interval(end - begun);
        let late = sender.delay() + stalls.after(sender.now() - begun);
        sender.control(seen, late);
    }
    sender.counts()
}

fn run(sender: &mut PacedSender, seconds: u64) -> PacketCounts {
    sender.run_until(Duration::from_secs(seconds))
}

/// Returns the acknowledged rate as a share of `rate`.
fn share(totals: PacketCounts, packet: Bytes, seconds: u64, rate: Rate) -> f64 {
    let goodput = Rate::over(packet * totals.arrived, Duration::from_secs(seconds));
    goodput.as_bits_per_sec() as f64 / rate.as_bits_per_sec() as f64
}

const GBIT: Rate = Rate::bits_per_sec(1_000_000_000);
const PACKET: Bytes = Bytes::new(1500);

/// A path of 1 Gbit/s and 302 ms with a queue of 1 MB.
fn long_path() -> PathSpec {
    PathSpec {
        rate: Some(GBIT),
        rtt: Rtt::new(Duration::from_millis(302)),
        queue: Some(QueueLimit::Bytes(Bytes::new(1_000_000))),
        ..PathSpec::default()
    }
}

#[test]
fn a_shallow_queue_is_filled_without_loss() {
    let mut paced = PacedSender::new(&long_path(), PACKET, Some(Pacer::default()));
    let mut free = PacedSender::new(&long_path(), PACKET, None);
    let (start, free_start) = (run(&mut paced, 8), run(&mut free, 8));
    assert!(start.arrived >= free_start.arrived, "{start:?}, unpaced {free_start:?}");
    let (rest, free_rest) = (run(&mut paced, 20), run(&mut free, 20));
    let (free_share, share) = (share(free_start, PACKET, 8, GBIT), share(rest, PACKET, 12, GBIT));
    assert!(share >= 0.9, "{share} of the rate, {rest:?}");
    assert!(start.lost + rest.lost < 10, "{start:?}, {rest:?}");
    assert!(rest.arrived >= free_rest.arrived, "{rest:?}, unpaced {free_rest:?}");
    // An unpaced slow start overflows the queue long before the path is full: its bursts have twice
    // their mean rate.
    assert!(free_start.lost > 300 && free_share < 0.5, "unpaced {free_start:?}");
}

/// Random losses decide in each run whether the cap holds at a step, or is given up to CUBIC: the
/// median of several seeds counts.
#[test]
fn pace_follows_background_steps() {
    let runs = |is_paced: bool| {
        let (mut shares, mut losses): (Vec<f64>, Vec<f64>) =
            (1..=9).map(|seed| background_steps(seed, is_paced.then(Pacer::default))).unzip();
        shares.sort_by(f64::total_cmp);
        losses.sort_by(f64::total_cmp);
        (shares[4], losses[4])
    };
    let ((share, lost), (free_share, free_lost)) = (runs(true), runs(false));
    assert!(share >= 0.85 && share > 4.0 * free_share, "{share} of what is left, unpaced {free_share}");
    // A step is detected by its losses, an RTT later, and answered in three steps of two RTTs: 2 %
    // of 40 s. A full DropTail queue drops more of random than of even arrivals; an unpaced flow
    // never fills the path.
    assert!(
        lost < 0.03 && free_lost < 0.001,
        "the background loses {lost}, beside an unpaced flow {free_lost}"
    );
}

/// Returns the share of what a background in steps leaves, and the part of the background that is
/// lost.
fn background_steps(seed: u64, pacer: Option<Pacer>) -> (f64, f64) {
    let mut spec = PathSpec { seed, ..long_path() };
    spec.set("background", "0%@0s,20%@8s,50%@16s,20%@24s,0%@32s").unwrap();
    let mut sender = PacedSender::new(&spec, PACKET, pacer);
    run(&mut sender, 8);
    let shares = [(8, 0.2), (16, 0.5), (24, 0.2), (32, 0.0)].map(|(from, others)| {
        run(&mut sender, from + 3);
        share(run(&mut sender, from + 8), PACKET, 5, GBIT) / (1.0 - others)
    });
    let background = sender.background();
    assert!(background.offered > 100_000, "{background:?}");
    (shares.iter().sum::<f64>() / shares.len() as f64, background.lost as f64 / background.offered as f64)
}

/// A fast path is paced once packets were lost at a short queue: slow start overflows it only once.
#[test]
fn fast_path_is_paced_once_its_short_queue_has_overflowed() {
    for (rtt_ms, queue_ms) in [(200, 8.0), (200, 20.0), (100, 8.0)] {
        let spec = path(10_000, rtt_ms, queue_ms / rtt_ms as f64, "0");
        let (packet, rate) = (Bytes::new(9000), spec.rate.unwrap());
        let mut sender = PacedSender::new(&spec, packet, Some(Pacer::default()));
        let start = run(&mut sender, 5);
        let rest = run(&mut sender, 10);
        let share = share(rest, packet, 5, rate);
        assert!(start.lost > 0, "or there would have been nothing to avoid");
        assert!(
            share > 0.93 && rest.lost == 0,
            "{rtt_ms} ms, {queue_ms} ms: {share}, {rest:?} after {start:?}"
        );
    }
}

/// A path with a queue of `queue` BDPs, and cross flows.
fn path(mbit: u64, rtt_ms: u64, queue: f64, others: &str) -> PathSpec {
    let (rate, rtt) = (Rate::bits_per_sec(mbit * 1_000_000), Rtt::new(Duration::from_millis(rtt_ms)));
    PathSpec {
        rate: Some(rate),
        rtt,
        queue: Some(QueueLimit::Bytes(Bytes::new((rate.bdp(rtt).get() as f64 * queue) as u64))),
        traffic: TrafficSpec { cross_flows: others.parse().unwrap(), ..TrafficSpec::default() },
        ..PathSpec::default()
    }
}

const LARGE: Bytes = Bytes::new(3000);

#[test]
fn paced_flow_alone_on_a_deep_queue_is_as_fast_as_unpaced() {
    for (mbit, rtt_ms, queue) in [(1000, 100, 1.0), (1000, 20, 1.0), (100, 50, 1.0), (500, 80, 3.0)] {
        let spec = path(mbit, rtt_ms, queue, "0");
        let paced = run(&mut PacedSender::new(&spec, LARGE, Some(Pacer::default())), 8);
        let free = run(&mut PacedSender::new(&spec, LARGE, None), 8);
        let share = paced.arrived as f64 / free.arrived as f64;
        assert!(share > 0.95, "{mbit} Mbit/s, {rtt_ms} ms: {share} of unpaced: {paced:?}, {free:?}");
        assert_eq!(paced.lost, 0, "{mbit} Mbit/s, {rtt_ms} ms");
        assert!(free.lost > 0, "or there would have been nothing to avoid");
    }
}

#[test]
fn paced_flow_keeps_its_share_beside_queue_filling_flows() {
    let mut ratios = Vec::new();
    for (mbit, rtt_ms, queue, others) in [
        (1000, 100, 1.0, "2"),
        (1000, 100, 1.0, "2@5s.."),
        (1000, 100, 0.3, "2@2s.."),
        (1000, 20, 1.0, "2"),
        (500, 80, 3.0, "1@5s.."),
        (100, 50, 1.0, "2"),
        (100, 50, 2.0, "4@1s.."),
    ] {
        let spec = path(mbit, rtt_ms, queue, others);
        let mut paced = PacedSender::new(&spec, LARGE, Some(Pacer::default()));
        let mut free = PacedSender::new(&spec, LARGE, None);
        let later = |sender: &mut PacedSender| {
            run(sender, 10);
            let totals = run(sender, 30);
            share(totals, LARGE, 20, spec.rate.unwrap())
        };
        let (paced, free) = (later(&mut paced), later(&mut free));
        // An unpaced flow that started first fills the queue and keeps more than its share.
        let due = 1.0 / f64::from(spec.traffic.cross_flows.count + 1);
        println!("{mbit} Mbit/s, {rtt_ms} ms, {queue} BDP, beside {others}: {paced}, unpaced {free}");
        ratios.push(paced / due.min(free));
    }
    let mean = ratios.iter().map(|ratio| ratio.min(1.0)).sum::<f64>() / ratios.len() as f64;
    assert!(mean > 0.85 && ratios.iter().all(|ratio| *ratio > 0.7), "{ratios:?}");
}

/// A flow that is there before BBR flows keeps what an unpaced one would, but no more than an equal
/// share, and loses less. BBR flows that start together share a queue of 0.1 BDP unequally for
/// minutes; the pacer, which starts under Reno, then only loses less.
#[test]
fn paced_flow_keeps_unpaced_share_beside_bbr_flows() {
    const BURST: Bytes = Bytes::new(12_000);
    let mut losses = (0, 0);
    for (queue, rtts) in [(0.1, [100, 200].as_slice()), (1.0, &[20, 100, 200])] {
        let mut ratios = Vec::new();
        for (rtt_ms, others) in rtts.iter().flat_map(|rtt| ["2", "2@10s.."].map(|others| (*rtt, others))) {
            let mut spec = path(1000, rtt_ms, queue, others);
            spec.ends.congestion = "bbr".to_owned();
            let of_path = |pacer| {
                let mut sender = PacedSender::new(&spec, BURST, pacer);
                run(&mut sender, 10);
                let totals = run(&mut sender, 40);
                (share(totals, BURST, 30, GBIT), sender.counts().lost)
            };
            let ((paced, lost), (free, lost_unpaced)) = (of_path(Some(Pacer::default())), of_path(None));
            println!(
                "{rtt_ms} ms, {queue} BDP, beside {others}: {paced} {lost}, unpaced {free} {lost_unpaced}"
            );
            losses = (losses.0 + lost, losses.1 + lost_unpaced);
            if queue > 0.1 || others != "2" {
                ratios.push((paced / free.min(1.0 / 3.0)).min(1.0));
            }
        }
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!(mean >= 0.8, "queue of {queue} BDP: {ratios:?}");
    }
    assert!(losses.0 <= losses.1, "lost in all, and unpaced: {losses:?}");
}

#[test]
fn paced_flow_is_alone_again_after_cross_flows_end() {
    // On the deeper queue the flow's own window alone would never let it drain.
    for (mbit, rtt_ms, queue, others) in [(1000, 100, 1.0, "2@5s..15s"), (500, 80, 3.0, "1@5s..15s")] {
        let spec = path(mbit, rtt_ms, queue, others);
        let mut sender = PacedSender::new(&spec, LARGE, Some(Pacer::default()));
        run(&mut sender, 25);
        let alone = run(&mut sender, 35);
        let share = share(alone, LARGE, 10, spec.rate.unwrap());
        assert!(share > 0.95 && alone.lost == 0, "{mbit} Mbit/s, {queue} BDP: {share}: {alone:?}");
    }
}

/// The pacer's limit is 3 Gbit/s: a path just below is not taken for a faster one because a pace of
/// more was set for a moment.
#[test]
fn path_just_below_the_fastest_paced_one_keeps_its_pace_on_a_busy_host() {
    for seed in 1..=3 {
        let spec = path(3_000, 200, 0.1, "0");
        let mut sender = PacedSender::new(&spec, LARGE, Some(Pacer::default())).with_noise(seed);
        let totals = run(&mut sender, 8);
        assert!(totals.lost * 100 < totals.sent, "seed {seed}: {totals:?}");
    }
}

#[test]
fn short_queue_of_a_short_path_is_overflowed_neither_by_slow_start_nor_by_probes() {
    for mbit in [1_000, 3_000] {
        let spec = path(mbit, 20, 0.1, "0");
        let mut sender = PacedSender::new(&spec, PACKET, Some(Pacer::default()));
        let start = run(&mut sender, 1);
        let rest = run(&mut sender, 10);
        let share = share(rest, PACKET, 9, spec.rate.unwrap());
        assert!(
            share > 0.97 && rest.lost < 30,
            "{mbit} Mbit/s: {share} of the rate, {rest:?} after {start:?}"
        );
        assert!(start.lost < 30, "{mbit} Mbit/s: {start:?}");
    }
}

/// The RTT grows as by a queue that other traffic fills. Taken for one again and again, it must not
/// lower the pace without end.
#[test]
fn stalls_of_a_host_do_not_lower_the_pace() {
    for (queue, seed) in [1.0, 0.027].into_iter().flat_map(|queue| [1, 2, 3].map(|seed| (queue, seed))) {
        let spec = path(100, 300, queue, "0");
        let of_path = |pacer| {
            let mut sender = PacedSender::new(&spec, PACKET, pacer).with_noise(seed);
            let counts = run_with_stalls(&mut sender, Duration::from_secs(40), seed);
            share(counts, PACKET, 40, spec.rate.unwrap())
        };
        let (paced, free) = (of_path(Some(Pacer::default())), of_path(None));
        println!("{queue} BDP, seed {seed}: {paced}, unpaced {free}");
        assert!(
            paced > 0.85 * free,
            "queue of {queue} BDP, seed {seed}: {paced} of the rate, unpaced {free}"
        );
    }
}

/// BBR's own pace, which the cap bounds, hides what a test would show.
#[test]
fn cap_of_false_trains_is_gone_under_each_congestion_control() {
    for (congestion, cap, mbit, rtt_ms, rtts) in [
        ("cubic", 1, 1000, 100, 25),
        ("bbr", 1, 1000, 100, 25),
        ("bbr", 100, 1000, 100, 20),
        ("bbr", 2, 100, 200, 20),
    ] {
        let mut spec = path(mbit, rtt_ms, 1.0, "0");
        spec.ends.congestion = congestion.to_owned();
        let first = Rate::bits_per_sec(cap * 1_000_000);
        let mut sender = PacedSender::new(&spec, PACKET, Some(Pacer::with_first_cap(first)));
        let rtt = spec.rtt.get();
        sender.run_until(rtt * rtts);
        let delivered = PACKET * sender.run_until(rtt * (rtts + 5)).arrived;
        let share = delivered.get() as f64 / (spec.rate.unwrap().bdp(spec.rtt) * 5).get() as f64;
        assert!(share > 0.85, "{congestion}, {cap} of {mbit} Mbit/s, {rtt_ms} ms: {share}");
    }
}
