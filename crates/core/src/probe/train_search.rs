//! Which trains to send: growing ones until the rate shows, larger ones until the queue is full, a long thin one for the loss.

use std::time::Duration;

use crate::units::{Bytes, Rate};

use super::packet_train::{IdleTransit, LossShare, PacketTrain};

/// A train to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainPlan {
    /// Packets.
    pub count: u32,
    /// UDP payload of each.
    pub message: Bytes,
    /// The rate at the IP layer; `None` for back to back.
    pub rate: Option<Rate>,
}

impl TrainPlan {
    /// Returns what the train has at the IP layer, where each message has so many bytes of headers.
    pub fn bytes(&self, headers: Bytes) -> Bytes {
        (self.message + headers) * u64::from(self.count)
    }
}

/// The first train: few enough for any queue, an IW10 and a half.
const FIRST_COUNT: u32 = 16;
/// Growth of a queue's trains from one to the next.
const GROWTH: u32 = 4;
/// The most growth of a rate's trains: a few packets overrate a path whose hosts deliver them together.
const MOST_GROWTH: u32 = 16;
/// A train that takes this long to arrive is long enough: hosts stamp to a tenth of a millisecond or two, 1 % of it.
const LONG_ENOUGH: Duration = Duration::from_millis(20);
/// The largest train for the rate: 20 ms of 10 Gbit/s.
const LARGEST_COUNT: u32 = 16_384;
/// Trains of the final size; their median is the rate.
const REPETITIONS: usize = 3;
/// Trains that are sent again because their sender paused.
const REPLACEMENTS: u32 = 3;
/// Trains in a row of which nothing arrives before UDP counts as blocked.
const SILENT_TRAINS: u32 = 2;

/// What trains say of the path's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainRate {
    /// The rate at the IP layer.
    pub rate: Rate,
    /// Whether the path set it; otherwise the sender was slower, and the path holds at least this.
    pub is_path_limited: bool,
    /// The rate at which the sender sends back to back.
    pub fastest: Rate,
}

/// The search for the path's rate by growing trains.
#[derive(Debug, Clone)]
pub struct TrainSearch {
    message: Bytes,
    count: u32,
    /// The pace of further trains, once one back to back has overflowed the queue before it was long enough.
    pace: Option<Rate>,
    silent: u32,
    /// How many trains may still be sent again.
    replacements: u32,
    finals: Vec<TrainRate>,
}

/// The pace above the rate found, where back to back is too fast for the queue: the bottleneck is never idle.
const ABOVE: f64 = 1.5;
/// Sending a paced train, or receiving one of the size that was aimed at, takes this many times [`LONG_ENOUGH`].
const PACED_TIMES: u32 = 2;

impl TrainSearch {
    /// Starts with messages of `message` bytes.
    pub fn new(message: Bytes) -> Self {
        let replacements = REPLACEMENTS;
        Self { message, count: FIRST_COUNT, pace: None, silent: 0, replacements, finals: Vec::new() }
    }

    /// Returns the next train; `None` where the search is over.
    pub fn next_train(&self) -> Option<TrainPlan> {
        let is_over = self.finals.len() >= REPETITIONS || self.silent >= SILENT_TRAINS;
        (!is_over).then_some(TrainPlan { count: self.count, message: self.message, rate: self.pace })
    }

    /// Takes what became of the train that [`next_train`](Self::next_train) asked for.
    pub fn record(&mut self, train: &PacketTrain) {
        let Some(found) = train.dispersion() else {
            self.record_undispersed(train);
            return;
        };
        self.silent = 0;
        if train.duration() >= LONG_ENOUGH && found.time < LONG_ENOUGH && self.replacements > 0 {
            self.replacements -= 1;
        } else if found.time >= LONG_ENOUGH || self.count >= LARGEST_COUNT || self.pace.is_some() {
            let is_path_limited = found.is_path_limited();
            self.finals.push(TrainRate { rate: found.rate, is_path_limited, fastest: found.sent_at });
        } else if train.overflows(0.0) {
            // A longer train would only lose more: it lasts as long as the queue does.
            let pace = found.rate.scaled(ABOVE);
            let count = pace.bytes_in(LONG_ENOUGH * PACED_TIMES).get() / train.packet.get().max(1);
            self.count = u32::try_from(count).unwrap_or(u32::MAX).clamp(FIRST_COUNT, LARGEST_COUNT);
            self.pace = Some(pace);
        } else {
            let wanted = found.rate.bytes_in(LONG_ENOUGH * PACED_TIMES).get() / train.packet.get().max(1);
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
            self.count = wanted.clamp(self.count * 2, self.count * MOST_GROWTH).min(LARGEST_COUNT);
        }
    }

    /// Takes a train that has no rate: nothing of it arrived, or all in one piece (GRO), so that only a longer one shows a rate.
    fn record_undispersed(&mut self, train: &PacketTrain) {
        if train.arrivals.len() < 2 || self.count >= LARGEST_COUNT {
            self.silent += 1;
        } else {
            self.silent = 0;
            self.count = (self.count * MOST_GROWTH).min(LARGEST_COUNT);
        }
    }

    /// Returns whether nothing arrived at all.
    pub fn is_blocked(&self) -> bool {
        self.silent >= SILENT_TRAINS && self.finals.is_empty()
    }

    /// Returns the rate: the median of the final trains; `None` before the first of them.
    pub fn rate(&self) -> Option<TrainRate> {
        let mut finals = self.finals.clone();
        finals.sort_by_key(|found| found.rate);
        finals.get(finals.len() / 2).copied()
    }
}

/// The size of the path's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueSize {
    /// Bytes at the IP layer.
    pub size: Bytes,
    /// The delay that a full queue adds.
    pub delay: Duration,
    /// Whether no packet was dropped: the queue holds at least this.
    pub is_lower_bound: bool,
}

/// The search for the size of the queue before the bottleneck: trains back to back, until several have overflowed it.
#[derive(Debug, Clone)]
pub struct QueueSearch {
    message: Bytes,
    /// The message with its headers.
    packet: Bytes,
    rate: Rate,
    /// What may still be sent.
    budget: Bytes,
    next: Bytes,
    idle: Option<IdleTransit>,
    /// The longest wait of packets so far.
    longest: Duration,
    /// The wait of a full queue, by each train that overflowed it.
    full: Vec<Duration>,
}

impl QueueSearch {
    /// Starts on a path of `rate`, with messages of `message` bytes and their headers, after a train that left the path idle; sends no
    /// more than `budget`.
    pub fn new(message: Bytes, headers: Bytes, rate: Rate, thin: &PacketTrain, budget: Bytes) -> Self {
        let packet = message + headers;
        let next = rate.bytes_in(LONG_ENOUGH * 4);
        let idle = thin.idle_transit(packet, rate);
        Self { message, packet, rate, budget, next, idle, longest: Duration::ZERO, full: Vec::new() }
    }

    /// Returns the next train; `None` where the queue has overflowed often enough or the budget is spent.
    pub fn next_train(&self) -> Option<TrainPlan> {
        // The rest of the budget goes into one train rather than into two of which neither is long enough.
        let is_last =
            self.full.is_empty() && self.next.get().saturating_mul(u64::from(GROWTH)) > self.budget.get();
        let bytes = if is_last { self.budget } else { self.next };
        let count = u32::try_from(bytes.get() / self.packet.get().max(1)).unwrap_or(u32::MAX);
        let is_over = self.full.len() >= REPETITIONS || bytes > self.budget;
        (!is_over && count >= FIRST_COUNT).then_some(TrainPlan { count, message: self.message, rate: None })
    }

    /// Returns whether the size is known, if by one train only.
    pub fn has_overflowed(&self) -> bool {
        !self.full.is_empty()
    }

    /// Takes what became of a train of this search. `base` is the path's loss without a queue.
    pub fn record(&mut self, train: &PacketTrain, base: f64) {
        self.budget = self.budget.saturating_sub(train.packet * u64::from(train.count));
        self.observe(train, base);
    }

    /// Takes what became of a train that was sent for another search, at no cost to the budget.
    pub fn observe(&mut self, train: &PacketTrain, base: f64) {
        let sent = train.packet.get() * u64::from(train.count);
        self.longest = self.longest.max(train.queueing_delay());
        if train.overflows(base) {
            self.full.push(train.full_queue_delay(self.idle).unwrap_or(train.queueing_delay()));
            // One that has filled the queue needs not be exceeded.
            self.next = Bytes::new(sent);
        } else if self.full.is_empty() {
            self.next = Bytes::new(self.next.get().max(sent.saturating_mul(u64::from(GROWTH))));
        }
    }

    /// Returns the size: the wait in it times the rate, and the packet that waited; `None` where nothing waited.
    pub fn size(&self) -> Option<QueueSize> {
        let mut full = self.full.clone();
        full.sort_unstable();
        let median = full.get(full.len() / 2).copied();
        let delay = median.unwrap_or(self.longest);
        (!delay.is_zero()).then(|| QueueSize {
            size: self.rate.bytes_in(delay) + self.packet,
            delay,
            is_lower_bound: median.is_none(),
        })
    }
}

/// The message of loss trains: the smallest of the paper's, so that few bytes count many packets.
pub const LOSS_MESSAGE: Bytes = Bytes::new(64);
/// The share of the path's rate that a loss train uses: no queue builds up.
const LOSS_SHARE: f64 = 0.1;
/// The most packets a second: what two ordinary cores handle on both sides beside other work.
const LOSS_PACKETS_PER_SEC: u64 = 50_000;

/// Plans the train that counts losses within `time` on a path of `rate`, where each message has so many bytes of headers.
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

    /// IPv4's and UDP's.
    const HEADERS: Bytes = Bytes::new(28);

    /// A bottleneck behind a DropTail queue: the path of the tests.
    struct Path {
        rate: Rate,
        queue: Bytes,
        /// Rate at which the sender sends back to back.
        fastest: Rate,
        /// Each packet whose number is a multiple of this is lost behind the bottleneck; 0 for none.
        lose_every: u32,
    }

    impl Path {
        fn mbit(rate: u64, queue: u64) -> Self {
            let rate = Rate::bits_per_sec(rate * 1_000_000);
            let fastest = Rate::bits_per_sec(4_000_000_000);
            Self { rate, queue: Bytes::new(queue), fastest, lose_every: 0 }
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

        fn search(&self) -> (TrainRate, Option<QueueSize>, u64) {
            let message = Bytes::new(1472);
            let mut search = TrainSearch::new(message);
            let mut trains = Vec::new();
            while let Some(plan) = search.next_train() {
                let train = self.send(plan);
                search.record(&train);
                trains.push(train);
            }
            let found = search.rate().unwrap();
            let base = if self.lose_every == 0 { 0.0 } else { 1.0 / f64::from(self.lose_every) };
            let thin = self.send(loss_train(found.rate, Duration::from_secs(1), HEADERS));
            let budget = found.rate.bytes_in(Duration::from_millis(600));
            let mut queue = QueueSearch::new(message, HEADERS, found.rate, &thin, budget);
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

    fn near(found: f64, truth: f64) -> bool {
        (found / truth - 1.0).abs() < 0.05
    }

    #[test]
    fn rate_and_queue_of_simulated_paths_are_found_with_a_tenth_of_what_they_carry_in_ten_seconds() {
        for (mbit, queue) in
            [(10, 96_000), (10, 375_000), (100, 125_000), (100, 1_250_000), (1000, 2_500_000)]
        {
            for lose_every in [0, 100] {
                let path = Path { lose_every, ..Path::mbit(mbit, queue) };
                let (rate, size, sent) = path.search();
                let size = size.unwrap();
                assert!(
                    near(rate.rate.as_bits_per_sec() as f64, mbit as f64 * 1e6),
                    "{mbit}, {queue}: {rate:?}"
                );
                assert!(rate.is_path_limited);
                assert!(near(size.size.get() as f64, queue as f64), "{mbit}, {queue}: {size:?}");
                assert!(!size.is_lower_bound);
                assert!(sent as f64 <= mbit as f64 * 1e6 / 8.0, "{mbit}, {queue}: sent {sent}");
            }
        }
    }

    #[test]
    fn sender_slower_than_the_path_gives_a_lower_bound() {
        let path = Path { fastest: Rate::bits_per_sec(3_000_000_000), ..Path::mbit(10_000, 1_000_000) };
        let (rate, size, _) = path.search();
        assert!(!rate.is_path_limited && near(rate.rate.as_bits_per_sec() as f64, 3e9), "{rate:?}");
        assert!(size.is_none_or(|size| size.is_lower_bound));
    }

    #[test]
    fn train_that_arrives_in_one_piece_is_followed_by_a_longer_one() {
        let path = Path::mbit(3000, 10_000_000);
        let mut search = TrainSearch::new(Bytes::new(1472));
        while let Some(plan) = search.next_train() {
            let mut train = path.send(plan);
            // The receiving device merges what comes within 100 us.
            for arrival in &mut train.arrivals {
                arrival.received = Duration::from_micros(arrival.received.as_micros() as u64 / 100 * 100);
            }
            search.record(&train);
        }
        let found = search.rate().unwrap();
        assert!(near(found.rate.as_bits_per_sec() as f64, 3e9) && found.is_path_limited, "{found:?}");
    }

    #[test]
    fn queue_that_the_budget_cannot_fill_is_a_lower_bound() {
        let (_, size, _) = Path::mbit(100, 100_000_000).search();
        let size = size.unwrap();
        assert!(size.is_lower_bound && size.size > Bytes::mib(1), "{size:?}");
    }

    #[test]
    fn blocked_udp_ends_the_search() {
        let mut search = TrainSearch::new(Bytes::new(1472));
        for _ in 0..2 {
            let plan = search.next_train().unwrap();
            search.record(&PacketTrain {
                count: plan.count,
                packet: Bytes::new(1500),
                ..PacketTrain::default()
            });
        }
        assert!(search.next_train().is_none() && search.is_blocked() && search.rate().is_none());
    }

    #[test]
    fn loss_train_is_thin_and_bounded() {
        let slow = loss_train(Rate::bits_per_sec(10_000_000), Duration::from_secs(2), HEADERS);
        assert_eq!(slow.rate, Some(Rate::bits_per_sec(1_000_000)));
        assert_eq!(slow.count, 2717);
        let fast = loss_train(Rate::bits_per_sec(100_000_000_000), Duration::from_secs(2), HEADERS);
        assert_eq!(fast.count, 100_000);
        assert_eq!(fast.rate.unwrap().time_for(fast.bytes(HEADERS)).as_millis(), 2000);
        // Longer headers leave a tenth of the rate fewer packets.
        let v6 = loss_train(Rate::bits_per_sec(10_000_000), Duration::from_secs(2), Bytes::new(48));
        assert_eq!(v6.count, 2232);
    }

    #[test]
    fn losses_of_several_trains_are_added() {
        let path = Path { lose_every: 50, ..Path::mbit(100, 125_000) };
        let plan =
            TrainPlan { count: 1000, message: LOSS_MESSAGE, rate: Some(Rate::bits_per_sec(1_000_000)) };
        let train = path.send(plan);
        assert_eq!(loss_of([&train, &train]).lost, 40);
        assert_eq!(loss_of([]).sent, 0);
    }
}
