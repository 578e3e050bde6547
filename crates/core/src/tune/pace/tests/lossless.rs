//! A path without losses delivers with pacing what it delivers without, by whatever noise.

use super::*;

/// How many seeds are played; `make test-paths` plays 10,000.
fn seeds() -> u64 {
    std::env::var("LONGHAUL_PACING_SEEDS").map_or(60, |seeds| seeds.parse().unwrap())
}

/// Returns what is delivered in 30 s over a path whose rate, RTT and noise follow from `seed`.
fn delivered(seed: u64, mut pacer: Option<Pacer>) -> f64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut dice = move || (next_random(&mut random) >> 11) as f64 / (1_u64 << 53) as f64;
    dice();
    let rate = 100.0 * 100_f64.powf(dice());
    let rtt = 10 + (290.0 * dice()) as u64;
    let mut path = SimulatedPath::new(rate, rtt, f64::INFINITY);
    // The window ends at twice the BDP, as of a receiver.
    path.max_window = 2.0 * path.capacity * path.rtt.as_secs_f64();
    path.sway = Duration::from_secs_f64(if dice() < 0.3 { 0.01 * dice() } else { 0.0 });
    path.jitter = Duration::from_secs_f64(if dice() < 0.5 { 0.02 * dice().powi(2) } else { 0.0 });
    let (stalls, longest) = (dice() < 0.5, 0.02 * dice());
    while path.now < Duration::from_secs(30) {
        if stalls {
            let time = Duration::from_secs_f64(longest * dice());
            if dice() < 0.5 { path.hold_up(time) } else { path.hold_back(time) }
        }
        let until = path.now.as_secs_f64() + 0.02 + 0.3 * dice();
        path.run(&mut pacer, until.min(30.0));
    }
    assert!(path.lost == 0.0);
    path.acked
}

#[test]
fn lossless_path_delivers_as_much_as_without_pacing() {
    let (seeds, threads) = (seeds(), std::thread::available_parallelism().map_or(1, usize::from));
    let share = |seed| (delivered(seed, Some(Pacer::default())) / delivered(seed, None), seed);
    let shares: Vec<_> = std::thread::scope(|scope| {
        let part = |first| (first..seeds).step_by(threads).map(share).collect::<Vec<_>>();
        let parts: Vec<_> = (0..threads as u64).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let worst = shares.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let below: Vec<_> = shares.iter().filter(|(share, _)| *share < 0.98).collect();
    println!("{} seeds: {} below 0.98, the worst {worst:?}", shares.len(), below.len());
    assert!(worst.0 >= 0.9 && below.len() * 100 <= shares.len(), "share and seed: {worst:?}, {below:?}");
}
