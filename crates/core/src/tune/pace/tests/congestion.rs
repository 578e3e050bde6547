//! The depth of cuts, and losses without a queue.

use super::*;

#[test]
fn cut_lowers_the_pace_on_a_thin_path() {
    let mut path = SimulatedPath::new(4.0, 20, 20e3);
    let mut pacer = with_known_rate(&mut path, 6.0);
    path.run(&mut pacer, 1.0);
    let (share, lost) = (path.run(&mut pacer, 10.0), path.lost);
    assert!(share > 0.9 && lost == 0.0, "{share} of the path, {lost} lost: {:?}", pacer.unwrap().phase());
    // Ten segments per RTT would be 5.8 Mbit/s.
    let pace = pacer.unwrap().pace.unwrap();
    assert!(pace < Rate::bits_per_sec(4_700_000), "{pace}");
}

#[test]
fn path_that_was_down_for_a_second_is_filled_again() {
    let mut path = SimulatedPath::new(100.0, 100, 1e6);
    let (capacity, queue) = (path.capacity, path.queue);
    let mut pacer = with_known_rate(&mut path, 95.0);
    (path.capacity, path.queue) = (0.0, 0.0);
    path.run(&mut pacer, 1.0);
    assert!(path.lost > 0.0 && path.acked == 0.0);
    (path.capacity, path.queue) = (capacity, queue);
    path.run(&mut pacer, 20.0);
    let share = path.run(&mut pacer, 30.0);
    assert!(share > 0.9, "{share} of the path");
}
