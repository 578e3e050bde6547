//! ACK compression: acknowledgements depart in bursts; all packets keep their order.

use std::time::Duration;

use longhaul_core::units::Bytes;
use proptest::prelude::*;

use super::micros;
use crate::model::{AckCompression, Fate, Node, Time};

const ACK: Bytes = Bytes::new(52);
const FULL: Bytes = Bytes::new(1500);

#[test]
fn acknowledgements_depart_together_and_data_waits_behind_them() {
    let mut node = AckCompression::new(Duration::from_millis(5));
    for (arrives, size, leaves) in [
        (0, ACK, 0),
        (1, ACK, 5_000),
        (2_000, ACK, 5_000),
        (2_001, FULL, 5_000),
        (5_000, ACK, 5_000),
        (5_001, FULL, 5_001),
        (5_002, Bytes::new(120), 10_000),
        (5_003, Bytes::new(121), 10_000),
        (12_000, Bytes::new(121), 12_000),
    ] {
        assert_eq!(node.pass(micros(arrives), size), Fate::Leaves(micros(leaves)), "{size} at {arrives} µs");
    }
}

proptest! {
    #[test]
    fn keeps_the_order_and_holds_nothing_longer_than_a_period(
        arrivals in prop::collection::vec((0_u64..3_000_000, 40_u64..1500), 1..200),
        period in 0_u64..5_000_000,
    ) {
        let mut node = AckCompression::new(Duration::from_nanos(period));
        let (mut now, mut last) = (Time::START, Time::START);
        for (gap, size) in arrivals {
            now = now + Duration::from_nanos(gap);
            let Fate::Leaves(at) = node.pass(now, Bytes::new(size)) else { panic!("nothing is dropped") };
            prop_assert!(at >= now && at >= last && at.since(now) < Duration::from_nanos(period.max(1)));
            prop_assert!(size > 120 || at.as_nanos() % period.max(1) == 0);
            last = at;
        }
    }
}
