//! Burst loss against the Gilbert-Elliott formulas.

use longhaul_core::units::Bytes;

use crate::model::{BurstLoss, DropCause, Fate, GilbertElliott, Node, Time};

/// Returns for each of `packets` whether it was lost.
fn losses(parameters: GilbertElliott, seed: u64, packets: usize) -> Vec<bool> {
    let mut node = BurstLoss::new(parameters, seed);
    let mut pass = || node.pass(Time::START, Bytes::new(1500)) == Fate::Dropped(DropCause::Loss);
    (0..packets).map(|_| pass()).collect()
}

fn simple(to_bad: f64, to_good: f64) -> GilbertElliott {
    GilbertElliott { to_bad, to_good, loss_in_bad: 1.0, loss_in_good: 0.0 }
}

fn share(losses: &[bool]) -> f64 {
    losses.iter().filter(|lost| **lost).count() as f64 / losses.len() as f64
}

#[test]
fn share_and_length_of_bursts_are_those_of_the_model() {
    let parameters = simple(0.001, 0.1);
    assert!((parameters.mean_loss() - 0.001 / 0.101).abs() < 1e-12);
    let lost = losses(parameters, 7, 2_000_000);
    // About 20,000 lost packets in 2,000 bursts: five standard deviations are 15 %.
    assert!((share(&lost) / parameters.mean_loss() - 1.0).abs() < 0.15, "{}", share(&lost));
    let bursts: Vec<usize> = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect();
    let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
    assert!((mean / 10.0 - 1.0).abs() < 0.15, "bursts of {mean} packets");
}

#[test]
fn each_state_has_its_loss_probability() {
    let parameters = GilbertElliott { to_bad: 0.01, to_good: 0.04, loss_in_bad: 0.5, loss_in_good: 0.01 };
    // A fifth of the packets is in the bad state.
    assert!((parameters.mean_loss() - (0.2 * 0.5 + 0.8 * 0.01)).abs() < 1e-12);
    let lost = share(&losses(parameters, 7, 1_000_000));
    assert!((lost / parameters.mean_loss() - 1.0).abs() < 0.1, "{lost}");
    // With r = 1-p the states of consecutive packets are independent.
    let lost = losses(simple(0.3, 0.7), 7, 200_000);
    let after: Vec<bool> = lost.windows(2).filter(|pair| pair[0]).map(|pair| pair[1]).collect();
    for share in [share(&lost), share(&after)] {
        assert!((share - 0.3).abs() < 0.01, "{share}");
    }
}

#[test]
fn seed_decides_and_extremes_are_exact() {
    let parameters = simple(0.05, 0.5);
    assert_eq!(losses(parameters, 1, 10_000), losses(parameters, 1, 10_000));
    assert_ne!(losses(parameters, 1, 10_000), losses(parameters, 2, 10_000));
    assert_eq!(share(&losses(simple(0.0, 1.0), 1, 1000)), 0.0);
    assert_eq!(simple(0.0, 0.0).mean_loss(), 0.0);
    // The first packet is in the good state; the bad state is never left.
    let stuck = losses(simple(1.0, 0.0), 1, 1000);
    assert!(!stuck[0] && stuck[1..].iter().all(|lost| *lost));
    assert_eq!(share(&losses(simple(f64::NAN, 7.0), 1, 1000)), 0.0, "clamped");
}
