//! Properties of the tuner on random paths and observations.

use proptest::prelude::*;

use super::simulated_path::RandomNumbers;
use super::*;
use crate::tune::streams::{CountTuner, StreamBound, StreamTuner, StreamTunerStart};

/// Starts and observations, often at the edges of their ranges. Sequences of one seed begin
/// equally.
impl RandomNumbers {
    fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    fn sometimes<T>(&mut self, one_in: u64, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(one_in) == 0).then(|| value(self))
    }

    fn rtt(&mut self) -> Rtt {
        let nanos = self.sometimes(2, |draw| Duration::from_nanos(draw.below(2_000_000_000)));
        Rtt::new(nanos.unwrap_or(Duration::MAX))
    }

    fn rate(&mut self) -> Rate {
        Rate::bits_per_sec([0, self.bits(), self.below(100_000_000_000)][self.below(3) as usize])
    }

    fn start(&mut self) -> StreamTunerStart {
        let remembered = |draw: &mut Self| Remembered {
            rtt: draw.rtt(),
            rate: draw.rate(),
            streams: draw.bits() as usize,
        };
        let bound = |draw: &mut Self| StreamBound { window: Bytes::new(draw.bits()), line: draw.rate() };
        StreamTunerStart {
            rtt: self.rtt(),
            left: Bytes::new(self.bits()),
            most: self.below(300) as usize,
            remembered: self.sometimes(2, remembered),
            bound: self.sometimes(2, bound),
        }
    }

    fn interval(&mut self) -> Interval {
        let pressure =
            self.sometimes(2, |draw| f64::from_bits(draw.bits())).filter(|number| number.is_finite());
        Interval {
            data_rtt: self.sometimes(2, Self::rtt),
            out_of_order: self.sometimes(2, Self::bits).unwrap_or(0),
            left: Bytes::new(self.bits()),
            held_back: self.below(2) == 0,
            pressure: pressure.unwrap_or(0.0),
            ..Interval::free(self.rate(), self.rtt(), self.below(400) as usize)
        }
    }
}

proptest! {
    #[test]
    fn number_of_streams_stays_within_the_limit(seed: u64, intervals in 1..300) {
        let mut draw = RandomNumbers::new(seed);
        let start = draw.start();
        let mut tuner = StreamTuner::new(&start);
        let mut allowed = 1..=start.most.max(1);
        let mut now = Duration::ZERO;
        prop_assert!(allowed.contains(&tuner.streams()));
        for _ in 0..intervals {
            now += Duration::from_millis(draw.below(5000));
            if let Some(open) = draw.sometimes(50, |draw| draw.below(200) as usize) {
                tuner.refused(open, None, now);
                prop_assert!(tuner.streams() <= open.max(1));
            }
            if let Some(cap) = draw.sometimes(20, |draw| draw.below(200) as usize) {
                tuner.set_cap(cap, now);
                allowed = 1..=start.most.min(cap).max(1);
                prop_assert!(allowed.contains(&tuner.streams()));
            }
            let wanted = tuner.observe(&draw.interval(), now);
            prop_assert!(allowed.contains(&wanted) && wanted == tuner.streams());
            let within = 1..=start.most.max(1);
            prop_assert!(tuner.conclusion().is_none_or(|found| within.contains(&found.streams)));
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
        let mut path = SimulatedPath::new(mbit, rtt_ms, (queue * bdp).max(50.0 * PACKET), window);
        path.noise = noise;
        let one = best_fixed(&path, &[1], 20.0, 60.0);
        let mut session = path.session(0.0, FOREVER);
        let got = share(&mut path, &mut session, 20.0, 60.0);
        prop_assert!(got > 0.9 * one.max(0.9), "{got}, one stream {one}: {:?}", session.trace);
        share(&mut path, &mut session, 60.0, 180.0);
        prop_assert!(session.changes(120.0) <= 18, "{:?}", session.trace);
    }
}
