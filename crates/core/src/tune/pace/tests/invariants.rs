//! What holds for any observations: any noise, compression or thinning of acknowledgements, late
//! and missing observations.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const RTT: Duration = Duration::from_millis(100);

/// One step of a connection that is observed: the time since the last observation, and what has
/// changed.
#[derive(Debug, Clone)]
struct Step {
    millis: f64,
    /// Bytes delivered and sent, over what 1 Gbit/s would carry.
    delivered: f64,
    sent: f64,
    /// What noise or a queue adds to the RTT.
    excess_ms: f64,
    window: f64,
    /// The share of the bytes sent that is lost.
    lost: f64,
}

fn steps(lost: impl Strategy<Value = f64>) -> impl Strategy<Value = Vec<Step>> {
    let millis = prop_oneof![8 => 0.05..4.0, 1 => 4.0..300.0_f64];
    let rate = || prop_oneof![2 => Just(0.0), 4 => 0.0..2.0_f64, 1 => 2.0..200.0_f64, 1 => 0.0..0.001_f64];
    let excess = prop_oneof![3 => 0.0..1.0_f64, 1 => 0.0..30.0_f64, 1 => 0.0..2000.0_f64];
    let step = (millis, rate(), rate(), excess, 1e3..1e9_f64, lost).prop_map(
        |(millis, delivered, sent, excess_ms, window, lost)| Step {
            millis,
            delivered,
            sent,
            excess_ms,
            window,
            lost,
        },
    );
    vec(step, 1..400)
}

fn pacers() -> impl Strategy<Value = Pacer> {
    let known = prop_oneof![Just(1_u64), 1_000..20_000_000_000_u64, Just(u64::MAX)];
    prop_oneof![
        Just(Pacer::default()),
        known.clone().prop_map(|rate| Pacer::with_known_rate(Rate::bits_per_sec(rate))),
        known.prop_map(|rate| Pacer::with_first_cap(Rate::bits_per_sec(rate))),
    ]
}

/// Runs the pacer over `steps`; calls `check` after each with the pacer, the cap before, and the
/// time.
fn run(mut pacer: Pacer, steps: &[Step], mut check: impl FnMut(&Pacer, Option<Rate>, Duration)) {
    let (mut now, mut seen) =
        (Duration::ZERO, Observation { min_rtt: Rtt::new(RTT), ..Observation::default() });
    for step in steps {
        now += Duration::from_secs_f64(step.millis / 1e3);
        let carried = step.millis * 125e3;
        seen.sent += Bytes::new((step.sent * carried) as u64);
        seen.goodput = (seen.goodput + Bytes::new((step.delivered * carried) as u64)).min(seen.sent);
        seen.lost += Bytes::new((step.sent * carried * step.lost) as u64);
        seen.window = Bytes::new(step.window as u64);
        seen.rtt = Rtt::new(RTT + Duration::from_secs_f64(step.excess_ms / 1e3));
        let before = pacer.cap;
        let pace = pacer.observe(&seen, now);
        assert!(pace.is_none() == pacer.cap.is_none() && pace >= pacer.cap, "{pacer:?}");
        assert!(pace != Some(Rate::default()), "a pace of zero could not be raised: {pacer:?}");
        check(&pacer, before, now);
    }
}

proptest! {
    #[test]
    fn without_losses_the_cap_never_falls_and_leaves_room_once_raised(pacer in pacers(), steps in steps(Just(0.0))) {
        run(pacer, &steps, |pacer, before, _| {
            // No cap is above every cap; the trains' first cap is the one exception.
            let is_first = pacer.set_by == CapOrigin::Trains;
            assert!(pacer.cap.is_none() || before.is_none() && is_first || pacer.cap >= before, "{before:?}: {pacer:?}");
            if pacer.set_by == CapOrigin::Raise && let Some(cap) = pacer.cap {
                assert!(cap >= pacer.history.peak_delivery().scaled(1.25), "{pacer:?}");
                assert!(!pacer.history.window_grows(1.0) || cap >= pacer.history.delivery().scaled(2.0), "{pacer:?}");
            }
            assert!(pacer.set_by != CapOrigin::Losses, "{pacer:?}");
        });
    }

    #[test]
    fn losses_lower_the_cap_to_what_is_delivered_once_an_rtt(
        pacer in pacers(),
        steps in steps(prop_oneof![3 => Just(0.0), 1 => 0.0..0.5_f64]),
    ) {
        let mut lowered_at: Option<Duration> = None;
        run(pacer, &steps, |pacer, before, now| {
            let falls = before.is_none_or(|before| pacer.cap.is_some_and(|cap| cap < before));
            if pacer.cap.is_some() && falls && pacer.set_by == CapOrigin::Losses {
                let delivered = pacer.history.delivery().scaled(0.85);
                assert!(pacer.history.lost_share(Params::FEW_PACKETS) > Params::LOSS, "{pacer:?}");
                assert!(pacer.cap >= Some(delivered.min(before.unwrap_or(delivered))), "{pacer:?}");
                assert!(lowered_at.is_none_or(|at| now.saturating_sub(at) >= RTT), "{pacer:?}");
                lowered_at = Some(now);
            }
        });
    }

    #[test]
    fn known_rate_sets_no_cap_and_raises_the_first_within_its_error(known in 1_u64.., steps in steps(Just(0.0))) {
        let (mut unknown, mut caps) = (Vec::new(), Vec::new());
        run(Pacer::default(), &steps, |pacer, _, _| unknown.push(pacer.cap));
        run(Pacer::with_known_rate(Rate::bits_per_sec(known)), &steps, |pacer, _, _| caps.push(pacer.cap));
        let first = |caps: &[Option<Rate>]| caps.iter().enumerate().find_map(|(at, cap)| Some((at, (*cap)?)));
        match (first(&caps), first(&unknown)) {
            (Some((at, cap)), Some((when, least))) => {
                assert!(Rate::bits_per_sec(known) <= Pacer::PACED_BELOW, "a fast path is not paced");
                let most = least.scaled(1.001 / (1.0 - Params::UNCERTAINTY));
                assert!(at == when && (least..=most).contains(&cap), "{cap:?} of {known}, {least:?}");
            }
            (None, Some(_)) => assert!(Rate::bits_per_sec(known) > Pacer::PACED_BELOW),
            (known, unknown) => assert_eq!(known, unknown),
        }
    }
}

/// A sender that uses all of its cap on a free path, and what is observed of it through noise.
#[derive(Debug, Clone, Copy)]
struct Noise {
    /// The time between two observations, in RTTs.
    interval: f64,
    /// Maximum of a random addition to each RTT.
    jitter_ms: f64,
    /// Acknowledgements arrive together, once in this time.
    bunched_ms: f64,
    seed: u64,
}

fn noise() -> impl Strategy<Value = Noise> {
    let interval = prop_oneof![4 => 0.01..0.1_f64, 1 => 0.1..0.4_f64];
    let jitter_ms = prop_oneof![Just(0.0), 0.0..5.0_f64, 0.0..60.0_f64];
    (interval, jitter_ms, prop_oneof![Just(0.1), 0.1..40.0_f64], any::<u64>())
        .prop_map(|(interval, jitter_ms, bunched_ms, seed)| Noise { interval, jitter_ms, bunched_ms, seed })
}

/// Returns after how many RTTs a cap of 1 Mbit/s is off, or above `times` as much.
fn rtts_until(times: f64, noise: Noise) -> f64 {
    let (mut pacer, path) = (Pacer::with_first_cap(mbit(1.0)), mbit(times));
    let (mut now, mut sent, mut random) = (0.0, 0.0, noise.seed);
    let mut sent_by = vec![(0.0, 0.0)];
    let mut pace = Some(mbit(1.0));
    let rtt = RTT.as_secs_f64();
    // A connection that has been sending at its cap.
    while pace.is_some_and(|pace| pace < path) && now < 100.0 * rtt {
        next_random(&mut random);
        let step = noise.interval * rtt * (0.5 + (random >> 40) as f64 / f64::from(1 << 24));
        now += step;
        sent += pace.map_or(0.0, |pace| pace.as_bytes_per_sec() as f64) * step;
        sent_by.push((now, sent));
        let bunch = noise.bunched_ms / 1e3;
        let arrived = ((now / bunch).floor() * bunch - rtt).max(0.0);
        let goodput =
            sent_by.iter().take_while(|(at, _)| *at <= arrived).last().map_or(0.0, |(_, sent)| *sent);
        let excess = noise.jitter_ms / 1e3 * ((random >> 33) & 0xffff) as f64 / 65_536.0;
        let seen = Observation {
            goodput: Bytes::new(goodput as u64),
            window: Bytes::new((2.0 * (sent - goodput)) as u64 + 20_000),
            rtt: Rtt::new(RTT + Duration::from_secs_f64(excess)),
            min_rtt: Rtt::new(RTT),
            sent: Bytes::new(sent as u64),
            lost: Bytes::ZERO,
        };
        pace = pacer.observe(&seen, Duration::from_secs_f64(now));
        pace = pacer.cap.and(pace);
    }
    now / rtt
}

proptest! {
    #[test]
    fn cap_that_is_far_too_low_is_gone_within_a_few_rtts_whatever_the_noise(noise in noise()) {
        // One RTT passes before anything is delivered.
        let ten = rtts_until(10.0, noise);
        prop_assert!(ten <= 11.0, "10 times: {ten} RTTs");
        let thousand = rtts_until(1000.0, noise);
        prop_assert!(thousand <= 25.0, "1000 times: {thousand} RTTs");
    }
}
