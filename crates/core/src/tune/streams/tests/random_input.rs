//! Properties of the tuner on random paths and observations.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::tune::streams::{Interval, Remembered, StreamBound, StreamTuner, StreamTunerStart};
use crate::units::{Bytes, Rate, Rtt};

fn rtts() -> impl Strategy<Value = Rtt> {
    prop_oneof![Just(Duration::MAX), (0..2_000_000_000_u64).prop_map(Duration::from_nanos)].prop_map(Rtt::new)
}

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![Just(0), any::<u64>(), 0..100_000_000_000_u64].prop_map(Rate::bits_per_sec)
}

prop_compose! {
    fn starts()(
        rtt in rtts(),
        left in any::<u64>(),
        most in 0..300_usize,
        remembered in proptest::option::of((rtts(), rates(), any::<usize>())),
        bound in proptest::option::of((any::<u64>(), rates())),
    ) -> StreamTunerStart {
        let remembered = remembered.map(|(rtt, rate, streams)| Remembered { rtt, rate, streams });
        let bound = bound.map(|(window, line)| StreamBound { window: Bytes::new(window), line });
        StreamTunerStart { rtt, left: Bytes::new(left), most, remembered, bound }
    }
}

prop_compose! {
    fn intervals()(
        goodput in rates(),
        rtt in rtts(),
        data_rtt in proptest::option::of(rtts()),
        streams in 0..400_usize,
        out_of_order in prop_oneof![Just(0), any::<u64>()],
        left in any::<u64>(),
        held_back in any::<bool>(),
        pressure in prop_oneof![Just(0.0), any::<f64>()],
    ) -> Interval {
        Interval { goodput, rtt, data_rtt, streams, out_of_order, left: Bytes::new(left), held_back, pressure }
    }
}

proptest! {
    #[test]
    fn number_of_streams_stays_within_the_limit(
        start in starts(),
        seen in proptest::collection::vec((intervals(), 0..5_000_u64, proptest::option::weighted(0.02, 0..200_usize)), 1..300),
    ) {
        let mut tuner = StreamTuner::new(&start);
        let allowed = 1..=start.most.max(1);
        let mut now = Duration::ZERO;
        prop_assert!(allowed.contains(&tuner.streams()));
        for (seen, ms, refused) in seen {
            now += Duration::from_millis(ms);
            if let Some(open) = refused {
                tuner.refused(open, None, now);
                prop_assert!(tuner.streams() <= open.max(1));
            }
            let wanted = tuner.observe(&seen, now);
            prop_assert!(allowed.contains(&wanted) && wanted == tuner.streams());
            prop_assert!(tuner.conclusion().is_none_or(|found| allowed.contains(&found.streams)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn steady_path_is_used_with_few_changes(
        mbit in 20.0..2000.0_f64,
        rtt_ms in 1.0..250.0_f64,
        queue in 0.1..1.5_f64,
        needed in 0.3..40.0_f64,
        noise in 0.0..0.06_f64,
    ) {
        let bdp = mbit * 1e6 / 8.0 * rtt_ms / 1e3;
        let window = (bdp / needed).max(16.0 * KIB);
        let mut path = SimulatedPath::new(mbit, rtt_ms, (queue * bdp).max(50.0 * PACKET), window).but(|path| path.noise = noise);
        let one = best_fixed(&path, &[1], 20.0, 60.0);
        let mut session = path.session(0.0, FOREVER);
        let got = share(&mut path, &mut session, 20.0, 60.0);
        prop_assert!(got > 0.9 * one.max(0.9), "{got}, one stream {one}: {:?}", session.trace);
        share(&mut path, &mut session, 60.0, 180.0);
        prop_assert!(session.changes(120.0) <= 18, "{:?}", session.trace);
    }
}
