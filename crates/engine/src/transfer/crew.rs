//! The streams of a transfer: how many there are, how many there should be, and who goes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::seat::Seat;
use crate::cancel::Cancel;
use crate::threads::lock;

/// Streams that come and go.
pub(super) struct Crew {
    state: Mutex<State>,
    stop: Cancel,
    /// Somebody chooses the number: then a server that takes no more streams is obeyed, and that is no failure.
    tuned: bool,
    /// What streams look at with every read.
    wanted: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Those at work, and those that were sent away and still receive.
    seats: Vec<Arc<Seat>>,
    /// The number of the next stream: none is used twice.
    next: usize,
    refusal: Option<Refusal>,
}

impl State {
    fn staying(&self) -> usize {
        self.seats.iter().filter(|seat| !seat.is_to_go()).count()
    }
}

/// What a server that takes no further stream has said by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// How many others it was serving.
    pub(super) open: usize,
    /// For how long it wants no more, where it said so.
    pub(super) wait: Option<Duration>,
}

impl Crew {
    pub(super) fn new(tuned: bool, stop: &Cancel) -> Self {
        let [wanted, running, most] = [(); 3].map(|()| AtomicUsize::new(0));
        Self { state: Mutex::default(), stop: stop.clone(), tuned, wanted, running, most }
    }

    /// Returns how many streams there are, those that go included.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Returns how many there should be.
    pub(super) fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Returns how many there are that shall stay.
    pub(super) fn staying(&self) -> usize {
        lock(&self.state).staying()
    }

    /// Returns whether more than one has ever been wanted.
    pub(super) fn had_several(&self) -> bool {
        self.most.load(Ordering::Relaxed) > 1
    }

    /// Wants so many streams; returns the seats of those to be started.
    ///
    /// Who was sent away and is still there is kept first. Those without a connection go first, then the slowest.
    pub(super) fn want(&self, count: usize) -> Vec<Arc<Seat>> {
        let mut state = lock(&self.state);
        let mut staying = state.staying();
        let State { seats, next, .. } = &mut *state;
        self.wanted.store(count, Ordering::Relaxed);
        self.most.fetch_max(count, Ordering::Relaxed);
        for seat in seats.iter().filter(|seat| seat.is_to_go() && seat.is_connected()) {
            if staying < count {
                seat.keep();
                staying += 1;
            }
        }
        if staying > count {
            let mut by_use: Vec<_> = seats.iter().filter(|seat| !seat.is_to_go()).collect();
            by_use.sort_by_key(|seat| (seat.is_connected(), seat.rate()));
            by_use[..staying - count].iter().for_each(|seat| seat.send_away());
        }
        let missing = count.saturating_sub(staying);
        let started: Vec<_> =
            (*next..*next + missing).map(|id| Arc::new(Seat::new(id, &self.stop))).collect();
        *next += missing;
        seats.extend(started.iter().cloned());
        self.running.store(seats.len(), Ordering::Relaxed);
        started
    }

    /// Removes a stream that has ended.
    pub(super) fn leave(&self, seat: &Seat) {
        self.remove(&mut lock(&self.state).seats, seat);
    }

    fn remove(&self, seats: &mut Vec<Arc<Seat>>, seat: &Seat) {
        seats.retain(|other| other.id != seat.id);
        self.running.store(seats.len(), Ordering::Relaxed);
    }

    /// Removes a stream unless nobody would be left; returns whether it may end.
    pub(super) fn leave_to_others(&self, seat: &Seat) -> bool {
        let mut state = lock(&self.state);
        let others = state.seats.iter().any(|other| other.id != seat.id && !other.is_to_go());
        if others {
            self.remove(&mut state.seats, seat);
        }
        others
    }

    /// Returns whether the server answers another stream.
    pub(super) fn serves_another(&self, seat: &Seat) -> bool {
        lock(&self.state).seats.iter().any(|other| other.id != seat.id && other.is_answered())
    }

    /// Leaves to others for one that the server has refused, and keeps that for whoever chooses the number.
    ///
    /// Those with a connection are served, or will be refused in their turn; but where this one was `left_waiting`, so may they be.
    pub(super) fn leave_refused(
        &self,
        seat: &Seat,
        left_waiting: bool,
        wait: Option<Duration>,
    ) -> Option<Refusal> {
        if !self.tuned || !self.leave_to_others(seat) {
            return None;
        }
        let mut state = lock(&self.state);
        self.wanted.store(state.staying(), Ordering::Relaxed);
        let is_served = |other: &Seat| if left_waiting { other.is_answered() } else { other.is_connected() };
        let open = state.seats.iter().filter(|other| is_served(other) && !other.is_to_go()).count().max(1);
        let before = state.refusal.and_then(|refusal| refusal.wait);
        let refusal = Refusal { open, wait: wait.max(before) };
        state.refusal = Some(refusal);
        Some(refusal)
    }

    /// Takes the latest refusal.
    pub(super) fn take_refusal(&self) -> Option<Refusal> {
        lock(&self.state).refusal.take()
    }

    /// Sends everybody away from what they wait for: nothing is left to do.
    pub(super) fn dismiss(&self) {
        lock(&self.state).seats.iter().for_each(|seat| seat.cancel().cancel());
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::{Rate, Rtt};

    use super::*;

    fn ids(seats: &[Arc<Seat>]) -> Vec<usize> {
        seats.iter().map(|seat| seat.id).collect()
    }

    fn crew(count: usize) -> (Crew, Vec<Arc<Seat>>) {
        let crew = Crew::new(true, &Cancel::new());
        let seats = crew.want(count);
        for seat in &seats {
            seat.connected(Some(Rtt::default()));
            seat.set_rate(Rate::bits_per_sec(seat.id as u64 * 10 % 30));
        }
        (crew, seats)
    }

    #[test]
    fn the_slowest_go_and_are_kept_while_they_are_there() {
        let (crew, seats) = crew(4);
        let gone = || seats.iter().filter(|s| s.is_to_go()).map(|s| s.id).collect::<Vec<_>>();
        assert_eq!(crew.want(2).len(), 0);
        // 0, 10, 20 and 0 bits a second.
        assert_eq!((gone(), crew.running()), (vec![0, 3], 4));
        crew.leave(&seats[0]);
        assert_eq!(ids(&crew.want(5)), [4, 5], "one is kept, two are new");
        assert_eq!((gone(), crew.running(), crew.wanted()), (vec![0], 5, 5));
    }

    #[test]
    fn who_has_no_connection_goes_first_and_at_once() {
        let (crew, seats) = crew(3);
        seats[2].connected(None);
        crew.want(2);
        assert!(seats[2].is_to_go() && seats[2].cancel().is_cancelled());
    }

    #[test]
    fn the_last_stays_whatever_the_server_says() {
        let (crew, seats) = crew(5);
        seats[0].answered();
        seats[3].connected(None);
        let wait = Some(Duration::from_secs(60));
        let refused = |seat: usize, left_waiting, wait| {
            crew.leave_refused(&seats[seat], left_waiting, wait).map(|refusal| refusal.open)
        };
        // The others but one have connections, of which one was answered.
        assert_eq!([refused(4, false, wait), refused(2, true, None)], [Some(2 + 1), Some(1)]);
        // What another was told still holds.
        assert_eq!(crew.take_refusal(), Some(Refusal { open: 1, wait }));
        assert_eq!([refused(3, false, None), refused(1, false, None)], [Some(2), Some(1)]);
        assert_eq!((crew.take_refusal(), crew.wanted()), (Some(Refusal { open: 1, wait: None }), 1));
        assert_eq!((refused(0, false, wait), crew.take_refusal(), crew.running()), (None, None, 1));
    }
}
