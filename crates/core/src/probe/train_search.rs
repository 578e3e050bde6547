//! Plans packet trains: growing trains until the rate shows, larger ones until the queue is full, a
//! long train at a low rate for the loss.

use std::time::Duration;

use crate::units::{Bytes, Rate};

use super::packet_train::{Dispersion, IdleTransit, LossShare, PacketTrain, usual_longest_delay};
use super::report::MeasuredQueue;

/// A train to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainPlan {
    /// The number of packets.
    pub count: u32,
    /// The UDP payload of each packet.
    pub message: Bytes,
    /// The rate at the IP layer; `None` to send back to back.
    pub rate: Option<Rate>,
}

impl TrainPlan {
    /// Returns the train's bytes at the IP layer, with headers of `headers` bytes per message.
    pub fn bytes(&self, headers: Bytes) -> Bytes {
        (self.message + headers) * u64::from(self.count)
    }
}

/// The packets of the first train: 1.5 initial windows of 10 segments, few enough for any queue.
const FIRST_COUNT: u32 = 16;
/// The growth from one train of the queue search to the next.
const GROWTH: u32 = 4;
/// The largest growth of the rate search: the rate of few packets is too high if the hosts deliver
/// them together.
const MAX_GROWTH: u32 = 16;
/// The duration of a long enough train: hosts take timestamps with an error of 0.1 to 0.2 ms, 1 %
/// of it.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// The packets of the largest train of the rate search: 20 ms of 10 Gbit/s.
const LARGEST_COUNT: u32 = 16_384;
/// The number of trains of the final size, whose median is the rate.
const REPETITIONS: usize = 3;
/// The largest number of trains repeated because their sender paused.
const REPLACEMENTS: u32 = 3;
/// UDP counts as blocked after this number of consecutive trains with fewer than two arrivals.
const SILENT_TRAINS: u32 = 2;

/// Searches the path's rate by growing trains.
#[derive(Debug, Clone)]
pub struct TrainSearch {
    message: Bytes,
    count: u32,
    /// The pace of further trains, once a train back to back has overflowed the queue before it was
    /// long enough.
    pace: Option<Rate>,
    silent: u32,
    /// The number of trains that may still be repeated.
    replacements: u32,
    finals: Vec<Dispersion>,
}

/// The pace relative to the rate found, if back to back overflows the queue; above 1 so that the
/// bottleneck is never idle.
const ABOVE: f64 = 1.5;
/// The intended duration of a paced train, or of the arrival of a train back to back, as a multiple
/// of [`LONG_ENOUGH`].
const PACED_TIMES: u32 = 2;

impl TrainSearch {
    /// Creates a search with messages of `message` bytes.
    pub fn new(message: Bytes) -> Self {
        let replacements = REPLACEMENTS;
        Self { message, count: FIRST_COUNT, pace: None, silent: 0, replacements, finals: Vec::new() }
    }

    /// Returns the next train; `None` at the end of the search.
    pub fn next_train(&self) -> Option<TrainPlan> {
        let is_over = self.finals.len() >= REPETITIONS || self.silent >= SILENT_TRAINS;
        (!is_over).then_some(TrainPlan { count: self.count, message: self.message, rate: self.pace })
    }

    /// Records the result of the train from [`next_train`](Self::next_train).
    pub fn record(&mut self, train: &PacketTrain) {
        let Some(found) = train.dispersion() else {
            self.record_undispersed(train);
            return;
        };
        self.silent = 0;
        if train.duration() >= LONG_ENOUGH && found.time < LONG_ENOUGH && self.replacements > 0 {
            self.replacements -= 1;
        } else if found.time >= LONG_ENOUGH || self.count >= LARGEST_COUNT || self.pace.is_some() {
            self.finals.push(found);
        } else if train.overflows(0.0) {
            // A longer train would only lose more packets, because this one lasted as long as the
            // queue.
            let pace = found.rate.scaled(ABOVE);
            let count = pace.bytes_in(LONG_ENOUGH * PACED_TIMES).get() / train.packet.get().max(1);
            self.count = u32::try_from(count).unwrap_or(u32::MAX).clamp(FIRST_COUNT, LARGEST_COUNT);
            self.pace = Some(pace);
        } else {
            let wanted = found.rate.bytes_in(LONG_ENOUGH * PACED_TIMES).get() / train.packet.get().max(1);
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            self.count = wanted.clamp(self.count * 2, self.count * MAX_GROWTH).min(LARGEST_COUNT);
        }
    }

    /// Records a train without a rate: no packet arrived, or all arrived together (GRO), so that
    /// only a longer train shows a rate.
    fn record_undispersed(&mut self, train: &PacketTrain) {
        if train.arrivals.len() < 2 || self.count >= LARGEST_COUNT {
            self.silent += 1;
        } else {
            self.silent = 0;
            self.count = (self.count * MAX_GROWTH).min(LARGEST_COUNT);
        }
    }

    /// Returns the final train of the median rate; `None` before the first of them.
    pub fn rate(&self) -> Option<Dispersion> {
        let mut finals = self.finals.clone();
        finals.sort_by_key(|found| found.rate);
        finals.get(finals.len() / 2).copied()
    }
}

/// Searches the size of the queue before the bottleneck by trains back to back, until several have
/// overflowed it.
#[derive(Debug, Clone)]
pub struct QueueSearch {
    message: Bytes,
    /// The size of a message with its headers.
    packet: Bytes,
    rate: Rate,
    /// The bytes that may still be sent.
    budget: Bytes,
    next: Bytes,
    idle: Option<IdleTransit>,
    /// The longest queueing delay so far.
    longest: Duration,
    /// The delay of the full queue, from each train that overflowed it.
    full: Vec<Duration>,
}

impl QueueSearch {
    /// Creates a search on a path of `rate`, with messages of `message` bytes and their headers.
    /// `thin` is a train that left the path idle. Sends at most `budget`.
    pub fn new(message: Bytes, headers: Bytes, rate: Rate, thin: &PacketTrain, budget: Bytes) -> Self {
        let packet = message + headers;
        let next = rate.bytes_in(LONG_ENOUGH * 4);
        let idle = thin.idle_transit(packet, rate);
        Self { message, packet, rate, budget, next, idle, longest: Duration::ZERO, full: Vec::new() }
    }

    /// Returns the next train; `None` once the queue has overflowed often enough or the budget is
    /// spent.
    pub fn next_train(&self) -> Option<TrainPlan> {
        // The rest of the budget is one train, because each of two trains would be too short.
        let is_last =
            self.full.is_empty() && self.next.get().saturating_mul(u64::from(GROWTH)) > self.budget.get();
        let bytes = if is_last { self.budget } else { self.next };
        let count = u32::try_from(bytes.get() / self.packet.get().max(1)).unwrap_or(u32::MAX);
        let is_over = self.full.len() >= REPETITIONS || bytes > self.budget;
        (!is_over && count >= FIRST_COUNT).then_some(TrainPlan { count, message: self.message, rate: None })
    }

    /// Returns whether at least one train has overflowed the queue.
    pub fn has_overflowed(&self) -> bool {
        !self.full.is_empty()
    }

    /// Records the result of a train of this search. `base` is the share of random loss of the
    /// path.
    pub fn record(&mut self, train: &PacketTrain, base: f64) {
        self.budget = self.budget.saturating_sub(train.packet * u64::from(train.count));
        self.observe(train, base);
    }

    /// Records the result of a train of another search, at no cost to the budget.
    pub fn observe(&mut self, train: &PacketTrain, base: f64) {
        let sent = train.packet.get() * u64::from(train.count);
        let delay = usual_longest_delay(&train.arrivals);
        self.longest = self.longest.max(delay);
        if train.overflows(base) {
            self.full.push(train.full_queue_delay(self.idle).unwrap_or(delay));
            // A train that has filled the queue need not be exceeded.
            self.next = Bytes::new(sent);
        } else if self.full.is_empty() {
            self.next = Bytes::new(self.next.get().max(sent.saturating_mul(u64::from(GROWTH))));
        }
    }

    /// Returns the size: the queueing delay times the rate, plus the queued packet; `None` if no
    /// packet was queued.
    pub fn size(&self) -> Option<MeasuredQueue> {
        let mut full = self.full.clone();
        full.sort_unstable();
        let median = full.get(full.len() / 2).copied();
        let delay = median.unwrap_or(self.longest);
        (!delay.is_zero()).then(|| MeasuredQueue {
            bytes: self.rate.bytes_in(delay) + self.packet,
            delay,
            is_lower_bound: median.is_none(),
        })
    }
}

/// The message size of loss trains: the smallest of the paper, so that few bytes count many
/// packets.
pub const LOSS_MESSAGE: Bytes = Bytes::new(64);
/// The share of the path's rate that a loss train uses, so that no queue builds up.
const LOSS_SHARE: f64 = 0.1;
/// The most packets per second: the capacity of two ordinary cores at both sides beside other work.
const LOSS_PACKETS_PER_SEC: u64 = 50_000;

/// Plans the train that counts losses within `time` on a path of `rate`, with headers of `headers`
/// bytes per message.
pub fn loss_train(rate: Rate, time: Duration, headers: Bytes) -> TrainPlan {
    let packet = LOSS_MESSAGE + headers;
    let most = Rate::bytes_per_sec(packet.get() * LOSS_PACKETS_PER_SEC);
    let rate = rate.scaled(LOSS_SHARE).min(most);
    let count = u32::try_from(rate.bytes_in(time).get() / packet.get()).unwrap_or(u32::MAX);
    TrainPlan { count: count.max(FIRST_COUNT), message: LOSS_MESSAGE, rate: Some(rate) }
}

/// Counts the losses of several trains.
pub fn loss_of<'a>(trains: impl IntoIterator<Item = &'a PacketTrain>) -> LossShare {
    let (mut sent, mut lost) = (0, 0);
    for train in trains {
        sent += u64::from(train.count);
        lost += u64::from(train.lost());
    }
    LossShare::new(sent, lost)
}

#[cfg(test)]
mod tests {
    use super::super::packet_train::Arrival;
    use super::*;

    /// The headers of IPv4 and UDP, and a message that fills a packet of 1500 bytes with them.
    const HEADERS: Bytes = Bytes::new(28);
    const MESSAGE: Bytes = Bytes::new(1472);

    /// A simulated bottleneck with a DropTail queue.
    struct Path {
        rate: Rate,
        queue: Bytes,
        /// The sender's rate back to back.
        fastest: Rate,
        /// Packets whose number is a multiple of this are lost after the bottleneck; 0 for none.
        lose_every: u32,
    }

    impl Path {
        fn mbit(rate: u64, queue: u64) -> Self {
            Self {
                rate: Rate::mbit(rate),
                queue: Bytes::new(queue),
                fastest: Rate::mbit(4000),
                lose_every: 0,
            }
        }

        fn send(&self, plan: TrainPlan) -> PacketTrain {
            let packet = plan.message + HEADERS;
            let mut arrivals = Vec::new();
            let (mut free, mut sent) = (Duration::ZERO, Duration::ZERO);
            for number in 0..plan.count {
                let waiting = self.rate.bytes_in(free.saturating_sub(sent));
                if waiting + packet <= self.queue {
                    free = free.max(sent) + self.rate.time_for(packet);
                    if self.lose_every == 0 || !(number + 1).is_multiple_of(self.lose_every) {
                        arrivals.push(Arrival { number, sent, received: free + Duration::from_millis(50) });
                    }
                }
                sent += plan.rate.unwrap_or(self.fastest).time_for(packet);
            }
            PacketTrain { count: plan.count, packet, arrivals, dropped_here: 0 }
        }

        /// Searches the rate; returns it with the trains, which `change` changes on their way.
        fn search_rate(
            &self,
            change: impl Fn(&mut PacketTrain),
        ) -> (Dispersion, Vec<(TrainPlan, PacketTrain)>) {
            let mut search = TrainSearch::new(MESSAGE);
            let mut trains = Vec::new();
            while let Some(plan) = search.next_train() {
                let mut train = self.send(plan);
                change(&mut train);
                search.record(&train);
                trains.push((plan, train));
            }
            (search.rate().unwrap(), trains)
        }

        fn search(&self) -> (Dispersion, Option<MeasuredQueue>, u64) {
            let (found, trains) = self.search_rate(|_| ());
            let mut trains: Vec<_> = trains.into_iter().map(|(_, train)| train).collect();
            let base = if self.lose_every == 0 { 0.0 } else { 1.0 / f64::from(self.lose_every) };
            let thin = self.send(loss_train(found.rate, Duration::from_secs(1), HEADERS));
            let budget = found.rate.bytes_in(Duration::from_millis(600));
            let mut queue = QueueSearch::new(MESSAGE, HEADERS, found.rate, &thin, budget);
            trains.iter().for_each(|train| queue.observe(train, base));
            while let Some(plan) = queue.next_train() {
                let train = self.send(plan);
                queue.record(&train, base);
                trains.push(train);
            }
            let sent = trains.iter().map(|train| train.packet.get() * u64::from(train.count)).sum();
            (found, queue.size(), sent)
        }
    }

    fn near(found: u64, truth: u64) -> bool {
        found.abs_diff(truth) < truth / 20
    }

    fn is_near(found: Dispersion, mbit: u64) -> bool {
        near(found.rate.as_bits_per_sec(), mbit * 1_000_000)
    }

    #[test]
    fn rate_and_queue_are_found_with_a_tenth_of_ten_seconds_of_the_path() {
        let cases = [(10, 96_000), (10, 375_000), (100, 125_000), (100, 1_250_000), (1000, 2_500_000)];
        for (mbit, queue) in cases {
            for lose_every in [0, 100] {
                let (rate, size, sent) = Path { lose_every, ..Path::mbit(mbit, queue) }.search();
                let size = size.unwrap();
                assert!(is_near(rate, mbit) && rate.is_path_limited(), "{mbit}, {queue}: {rate:?}");
                assert!(near(size.bytes.get(), queue) && !size.is_lower_bound, "{mbit}, {queue}: {size:?}");
                assert!(sent <= mbit * 1_000_000 / 8, "{mbit}, {queue}: sent {sent}");
            }
        }
    }

    /// A queue of 5 ms: trains that are long enough would lose most of their packets.
    #[test]
    fn trains_stop_growing_at_the_first_that_overflows_the_queue() {
        let path = Path::mbit(1000, 625_000);
        let (_, plans) = path.search_rate(|_| ());
        let first = plans.iter().position(|(_, train)| train.overflows(0.0)).unwrap();
        let (overflowing, paced) = (plans[first].0, &plans[first + 1..]);
        assert!(overflowing.rate.is_none() && paced.len() == REPETITIONS, "{overflowing:?}");
        for (plan, _) in paced {
            let ratio = plan.rate.unwrap().as_bits_per_sec() as f64 / 1e9;
            assert!((1.4..1.6).contains(&ratio) && plan.count == paced[0].0.count, "{plan:?}");
        }
        let thin = path.send(loss_train(path.rate, Duration::from_secs(1), HEADERS));
        let mut queue = QueueSearch::new(MESSAGE, HEADERS, path.rate, &thin, Bytes::mib(100));
        let counts: Vec<_> = std::iter::from_fn(|| {
            let plan = queue.next_train()?;
            queue.record(&path.send(plan), 0.0);
            Some(plan.count)
        })
        .collect();
        assert_eq!(counts, [counts[0]; REPETITIONS], "the first overflows the queue");
    }

    #[test]
    fn sender_slower_than_the_path_gives_a_lower_bound() {
        let path = Path { fastest: Rate::mbit(3000), ..Path::mbit(10_000, 1_000_000) };
        let (rate, size, _) = path.search();
        assert!(!rate.is_path_limited() && is_near(rate, 3000), "{rate:?}");
        assert!(size.is_none_or(|size| size.is_lower_bound));
        // A queue that the budget cannot fill is one too.
        let size = Path::mbit(100, 100_000_000).search().1.unwrap();
        assert!(size.is_lower_bound && size.bytes > Bytes::mib(1), "{size:?}");
    }

    #[test]
    fn train_that_arrives_as_one_group_is_followed_by_a_longer_one() {
        // The receiving device merges packets that arrive within 100 us.
        let (found, _) = Path::mbit(3000, 10_000_000).search_rate(|train| {
            for arrival in &mut train.arrivals {
                arrival.received = Duration::from_micros(arrival.received.as_micros() as u64 / 100 * 100);
            }
        });
        assert!(is_near(found, 3000) && found.is_path_limited(), "{found:?}");
    }

    #[test]
    fn blocked_udp_ends_the_search() {
        let mut search = TrainSearch::new(MESSAGE);
        for _ in 0..2 {
            let count = search.next_train().unwrap().count;
            search.record(&PacketTrain { count, packet: Bytes::new(1500), ..PacketTrain::default() });
        }
        assert!(search.next_train().is_none() && search.rate().is_none());
    }

    #[test]
    fn loss_train_has_a_low_bounded_rate_and_losses_are_added() {
        let plan = |mbit, headers| loss_train(Rate::mbit(mbit), Duration::from_secs(2), headers);
        let (slow, fast) = (plan(10, HEADERS), plan(100_000, HEADERS));
        assert_eq!((slow.rate, slow.count, fast.count), (Some(Rate::mbit(1)), 2717, 100_000));
        assert_eq!(fast.rate.unwrap().time_for(fast.bytes(HEADERS)).as_millis(), 2000);
        // With longer headers, a tenth of the rate holds fewer packets.
        assert_eq!(plan(10, Bytes::new(48)).count, 2232);
        let path = Path { lose_every: 50, ..Path::mbit(100, 125_000) };
        let train = path.send(TrainPlan { count: 1000, message: LOSS_MESSAGE, rate: Some(Rate::mbit(1)) });
        assert_eq!(loss_of([&train, &train]).lost, 40);
        assert_eq!(loss_of([]).sent, 0);
    }
}
