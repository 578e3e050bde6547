//! Packet trains: estimates from the times and gaps of their arrival.

use std::net::IpAddr;
use std::time::Duration;

use crate::units::{Bytes, Rate};

/// Returns the size of the UDP and IP headers, which a message adds at the IP layer.
pub fn udp_headers(address: IpAddr) -> Bytes {
    // A socket for both families reports IPv4 addresses as mapped addresses.
    Bytes::new(if address.to_canonical().is_ipv4() { 28 } else { 48 })
}

/// A packet of a train as received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The packet's number within the train, from 0.
    pub number: u32,
    /// The time of sending, by the sender's clock.
    pub sent: Duration,
    /// The time of arrival, by the receiver's clock, whose offset to the sender's clock is unknown.
    pub received: Duration,
}

impl Arrival {
    /// Returns the one-way time in nanoseconds, which includes the unknown offset of the clocks:
    /// only differences are meaningful.
    fn one_way(&self) -> i128 {
        self.received.as_nanos() as i128 - self.sent.as_nanos() as i128
    }
}

/// The one-way time of a packet that was not queued, in nanoseconds, with the unknown offset of the
/// clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdleTransit(i128);

/// A train of packets of one size with their arrivals.
#[derive(Debug, Clone, Default)]
pub struct PacketTrain {
    /// Packets sent.
    pub count: u32,
    /// The size of each packet at the IP layer.
    pub packet: Bytes,
    /// The packets that arrived, in the order of arrival.
    pub arrivals: Vec<Arrival>,
    /// Packets that reached this host but were dropped because the socket's buffer was full.
    pub dropped_here: u32,
}

/// The rate at which a train arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispersion {
    /// Bytes at the IP layer divided by `time`.
    pub rate: Rate,
    /// The time from the first arrival to the last.
    pub time: Duration,
    /// The rate at which these packets, and those lost between them, were sent.
    pub sent_at: Rate,
}

impl Dispersion {
    /// The least ratio of the sending rate to the arrival rate that shows a bottleneck; smaller
    /// ratios are due to the hosts' scheduling.
    const BOTTLENECK: f64 = 1.1;

    /// Returns whether the path, and not the sender, limited the rate.
    pub fn is_path_limited(&self) -> bool {
        self.sent_at.as_bits_per_sec() as f64 > self.rate.as_bits_per_sec() as f64 * Self::BOTTLENECK
    }
}

impl PacketTrain {
    /// Returns the number of packets lost on the path.
    pub fn lost(&self) -> u32 {
        let arrived = u32::try_from(self.arrivals.len()).unwrap_or(u32::MAX);
        self.count.saturating_sub(arrived).saturating_sub(self.dropped_here)
    }

    /// Returns the share of packets lost on the path, 0 to 1.
    pub fn loss(&self) -> f64 {
        if self.count == 0 { 0.0 } else { f64::from(self.lost()) / f64::from(self.count) }
    }

    /// Returns whether the train overflowed a queue on a path whose share of random loss is `base`.
    pub fn overflows(&self, base: f64) -> bool {
        /// The share of loss from which it is not random: that of a usable path is far lower.
        const SHARE: f64 = 0.05;
        /// The least number of losses, since a single loss is a large share of a short train.
        const MIN_LOST: u32 = 8;
        self.lost() >= MIN_LOST && self.loss() > base + SHARE
    }

    /// Counts reordered packets: those that arrived after one of a higher number (RFC 4737, section
    /// 3.3).
    pub fn reordered(&self) -> u32 {
        let mut highest = None;
        let mut late = 0;
        for arrival in &self.arrivals {
            if Some(arrival.number) < highest {
                late += 1;
            }
            highest = highest.max(Some(arrival.number));
        }
        late
    }

    /// Returns the rate at which the packets left the bottleneck; `None` for fewer than two
    /// packets, or no time between them.
    ///
    /// Packets that arrive faster than a bottleneck sends are queued and leave it back to back,
    /// whatever other packets are lost (Dovrolis et al., "What do packet dispersion techniques
    /// measure?", 2001; long trains, as here, measure the capacity that cross traffic leaves). If
    /// the sender paused for so long that the bottleneck was idle, only the longest part between
    /// two pauses counts.
    pub fn dispersion(&self) -> Option<Dispersion> {
        let arrivals = self.busy_part();
        let received = span(arrivals.iter().map(|arrival| arrival.received))?;
        let sent = span(arrivals.iter().map(|arrival| arrival.sent))?;
        if received.is_zero() {
            return None;
        }
        // Packets with one timestamp were delivered together: the time starts after the first
        // group.
        let first = arrivals.iter().map(|arrival| arrival.received).min()?;
        let later = arrivals.iter().filter(|arrival| arrival.received > first).count() as u64;
        let bytes = Bytes::new(self.packet.get() * later);
        let sent_at = match sent.is_zero() {
            // The packets were sent within one tick of the sender's clock.
            true => Rate::over(bytes, Duration::from_nanos(1)),
            false => Rate::over(self.packet * u64::from(sent_after_first(arrivals)), sent),
        };
        Some(Dispersion { rate: Rate::over(bytes, received), time: received, sent_at })
    }

    /// Returns the time from the first arrival to the last.
    pub fn duration(&self) -> Duration {
        span(self.arrivals.iter().map(|arrival| arrival.received)).unwrap_or_default()
    }

    /// Returns the longest part during which the bottleneck always had a packet to send.
    ///
    /// A packet that arrives long after its predecessor, and was delayed by less than half of that
    /// gap, met an idle bottleneck. A late receiver causes the gap too, but then delays the packet
    /// by all of it.
    fn busy_part(&self) -> &[Arrival] {
        /// The shortest pause: shorter gaps are due to hosts that wake up and send or receive
        /// several packets together.
        const PAUSE: Duration = Duration::from_micros(500);
        /// The shortest pause as a multiple of the mean gap, which is long on a slow path.
        const GAPS: u32 = 4;
        let packets = u32::try_from(self.arrivals.len()).unwrap_or(u32::MAX).max(1);
        let pause = PAUSE.max(self.duration() * GAPS / packets);
        let least = self.arrivals.iter().map(Arrival::one_way).min().unwrap_or_default();
        let meets_idle = |before: &Arrival, after: &Arrival| {
            let gap = after.received.saturating_sub(before.received);
            let waited = u128::try_from(after.one_way() - least).unwrap_or(0);
            gap > pause && waited < gap.as_nanos() / 2
        };
        let parts = self.arrivals.chunk_by(|before, after| !meets_idle(before, after));
        parts.max_by_key(|part| part.len()).unwrap_or_default()
    }

    /// Returns the one-way time of the fastest packet, converted to a packet of `size` on a path of
    /// `rate`; `None` if none arrived.
    pub fn idle_transit(&self, size: Bytes, rate: Rate) -> Option<IdleTransit> {
        let least = self.arrivals.iter().map(Arrival::one_way).min()?;
        let sending = |size: Bytes| rate.time_for(size).as_nanos() as i128;
        Some(IdleTransit(least + sending(size) - sending(self.packet)))
    }

    /// Returns the queueing delay of packets that found the queue almost full, because the packets
    /// after them were dropped. The median, weighted by these drops, which a few late packets do
    /// not change; `None` without drops.
    ///
    /// The first packets of a train are delayed by hosts that wake up: `idle`, from packets sent
    /// earlier at intervals, is the better measure of an idle path.
    pub fn full_queue_delay(&self, idle: Option<IdleTransit>) -> Option<Duration> {
        // Packets dropped by this host leave gaps too.
        if self.dropped_here > 0 {
            return None;
        }
        let own = self.arrivals.iter().map(Arrival::one_way).min()?;
        let least = idle.map_or(own, |IdleTransit(idle)| idle.min(own));
        let after = self.arrivals.iter().skip(1).map(|arrival| arrival.number).chain([self.count]);
        let mut full: Vec<(i128, u32)> = self
            .arrivals
            .iter()
            .zip(after)
            .map(|(arrival, next)| (arrival.one_way() - least, next.saturating_sub(arrival.number + 1)))
            .filter(|(_, dropped)| *dropped > 0)
            .collect();
        full.sort_unstable();
        let half = full.iter().map(|(_, dropped)| u64::from(*dropped)).sum::<u64>() / 2;
        let mut seen = 0;
        let median = full.into_iter().find(|(_, dropped)| {
            seen += u64::from(*dropped);
            seen > half
        })?;
        Some(Duration::from_nanos(u64::try_from(median.0).unwrap_or(0)))
    }
}

/// Returns the delay, relative to the fastest packet, that one in fifty packets exceeds: the
/// longest wait in a queue, without the rare delays of busy hosts.
pub fn usual_longest_delay(arrivals: &[Arrival]) -> Duration {
    let mut times: Vec<i128> = arrivals.iter().map(Arrival::one_way).collect();
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let delay = times.get(last - last / 50).map_or(0, |late| late - times[0]);
    Duration::from_nanos(u64::try_from(delay).unwrap_or(0))
}

/// Returns the number of packets sent after those with the first timestamp.
fn sent_after_first(arrivals: &[Arrival]) -> u32 {
    let first = arrivals.iter().map(|arrival| arrival.sent).min();
    let of_first = arrivals.iter().filter(|arrival| Some(arrival.sent) == first);
    let numbers = of_first.map(|arrival| arrival.number).max();
    let last = arrivals.iter().map(|arrival| arrival.number).max();
    last.unwrap_or_default().saturating_sub(numbers.unwrap_or_default())
}

/// Returns the time between the first and the last; `None` if `times` is empty.
fn span(times: impl Iterator<Item = Duration> + Clone) -> Option<Duration> {
    Some(times.clone().max()? - times.min()?)
}

/// Formats a share of packets in per cent, with three digits.
pub fn per_cent(share: f64) -> String {
    let value = share * 100.0;
    // From 100 % down to one packet in a million.
    let digits = if value > 0.0 { (2.0 - value.log10().floor()).clamp(0.0, 6.0) as usize } else { 0 };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

/// A share of lost packets, with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct LossShare {
    /// Packets sent.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// The share, 0 to 1.
    pub share: f64,
    /// The lower end of the interval.
    pub least: f64,
    /// The upper end of the interval.
    pub most: f64,
}

impl LossShare {
    /// Creates the share of `lost` packets out of `sent`; the interval is Wilson's (1927), which is
    /// valid for few losses too.
    pub fn new(sent: u64, lost: u64) -> Self {
        /// The 97.5th percentile of the normal distribution.
        const Z: f64 = 1.96;
        let (n, lost_n) = (sent.max(1) as f64, lost as f64);
        let share = (lost_n / n).min(1.0);
        let centre = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        Self { sent, lost, share, least: (centre - half).max(0.0), most: (centre + half).min(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICRO: fn(u64) -> Duration = Duration::from_micros;

    /// A train of 1500-byte packets sent back to back across 12 Mbit/s, one packet per millisecond;
    /// `change` changes each arrival.
    fn changed(arrived: impl Iterator<Item = u32>, change: impl Fn(u64, &mut Arrival)) -> PacketTrain {
        let arrival = |number: u32| {
            let (sent, received) =
                (MICRO(1_000_000 + u64::from(number)), MICRO(50_000 + 1000 * u64::from(number)));
            let mut arrival = Arrival { number, sent, received };
            change(number.into(), &mut arrival);
            arrival
        };
        let arrivals = arrived.map(arrival).collect();
        PacketTrain { count: 100, packet: Bytes::new(1500), arrivals, dropped_here: 0 }
    }

    fn train(arrived: impl Iterator<Item = u32>) -> PacketTrain {
        changed(arrived, |_, _| ())
    }

    #[test]
    fn bottleneck_spreads_a_train_to_its_own_rate() {
        let found = train(0..100).dispersion().unwrap();
        assert_eq!((found.rate, found.time), (Rate::mbit(12), MICRO(99_000)));
        assert!(found.is_path_limited());
        // The last of 50 packets: the second from the end.
        assert_eq!(usual_longest_delay(&train(0..100).arrivals), MICRO(98 * 999));
        // Too few packets have no rate.
        assert_eq!((train(0..1).dispersion(), train(0..0).dispersion()), (None, None));
    }

    #[test]
    fn slow_sender_is_detected_and_its_rate_includes_lost_packets() {
        let slow = changed(0..100, |_, arrival| arrival.sent = arrival.received);
        assert!(!slow.dispersion().unwrap().is_path_limited());
        assert_eq!(usual_longest_delay(&slow.arrivals), Duration::ZERO);
        // Two packets per millisecond, of which the full queue takes one.
        let lossy = changed((0..100).step_by(2), |number, arrival| {
            (arrival.sent, arrival.received) = (MICRO(500 * number), MICRO(500 * number));
        });
        let found = lossy.dispersion().unwrap();
        assert_eq!((found.rate, found.sent_at), (Rate::mbit(12), Rate::mbit(24)));
        assert!(found.is_path_limited());
    }

    #[test]
    fn losses_and_late_packets_are_counted_and_have_an_interval() {
        let lossy = train((0..100).filter(|number| number % 10 != 3));
        assert_eq!((lossy.lost(), lossy.loss(), lossy.reordered()), (10, 0.1, 0));
        assert_eq!(PacketTrain { dropped_here: 4, ..lossy }.lost(), 6);
        assert_eq!(train([0, 2, 1, 3, 5, 4].into_iter()).reordered(), 2);
        assert_eq!(PacketTrain::default().loss(), 0.0);
        let shares = [0.0, 1.0, 0.5066, 0.01, 0.000_103_2, 0.000_001];
        assert_eq!(shares.map(per_cent), ["0 %", "100 %", "50.7 %", "1 %", "0.0103 %", "0.0001 %"]);
        let found = LossShare::new(10_000, 100);
        assert!(found.least < 0.01 && found.most > 0.01 && found.most - found.least < 0.005, "{found:?}");
        let none = LossShare::new(1000, 0);
        assert!(none.share == 0.0 && none.least == 0.0 && (0.003..0.005).contains(&none.most), "{none:?}");
        assert_eq!(LossShare::new(0, 0).share, 0.0);
    }

    #[test]
    fn pause_of_the_sender_or_a_late_receiver_does_not_change_the_rate() {
        // 30 ms after the first 40 packets, the queue has been empty for long.
        let paused = changed(0..100, |number, arrival| {
            arrival.sent += MICRO(if number < 40 { 0 } else { 70_000 });
            arrival.received += MICRO(if number < 40 { 0 } else { 30_000 });
        });
        let found = paused.dispersion().unwrap();
        assert_eq!((found.rate, found.time), (Rate::mbit(12), MICRO(59_000)));
        assert!(found.is_path_limited() && paused.duration() == MICRO(129_000));
        // A late receiver does not divide a train.
        let at = train(0..100).arrivals[49].received;
        let late = changed(0..100, |number, arrival| {
            arrival.received = if (30..50).contains(&number) { at } else { arrival.received };
        });
        assert_eq!(late.dispersion().unwrap().time, MICRO(99_000));
        // Packets with one timestamp are one group.
        let pieces = changed(0..100, |number, arrival| {
            arrival.received = MICRO(50_000 + 1000 * (number / 10 * 10 + 9))
        });
        assert_eq!(pieces.dispersion().unwrap().rate, Rate::mbit(12));
    }

    #[test]
    fn full_queue_delay_is_that_of_packets_before_drops_and_of_more_than_a_few() {
        // Of each burst of ten packets, three are queued; the queue holds 20 ms. Two bursts are
        // received late.
        let mut full = train((0..100).filter(|number| number % 10 < 3));
        for (index, arrival) in full.arrivals.iter_mut().enumerate() {
            let place = index as u64 % 3;
            let late = if (12..18).contains(&index) { 9000 } else { 0 };
            arrival.received =
                arrival.sent + MICRO(if index < 3 { place * 1000 } else { 18_000 + place * 1000 + late });
        }
        assert_eq!(full.full_queue_delay(None), Some(MICRO(20_000)));
        // Hosts that wake up delay the first packets by 3 ms, but not those of an earlier train at
        // intervals.
        let alone = Arrival { number: 0, sent: MICRO(5), received: MICRO(5 + 64) };
        let thin = PacketTrain { packet: Bytes::new(96), arrivals: vec![alone], ..PacketTrain::default() };
        // On 12 Mbit/s a packet of the train takes 936 us longer to send.
        let idle = thin.idle_transit(full.packet, Rate::mbit(12));
        assert_eq!(idle, Some(IdleTransit(1_000_000)));
        full.arrivals.iter_mut().for_each(|arrival| arrival.received += MICRO(1000));
        full.arrivals[..3].iter_mut().for_each(|arrival| arrival.received += MICRO(3000));
        assert_eq!(full.full_queue_delay(None), Some(MICRO(17_000)));
        assert_eq!(full.full_queue_delay(idle), Some(MICRO(20_000)));
        assert_eq!(PacketTrain { dropped_here: 1, ..full }.full_queue_delay(idle), None);
        assert_eq!(train(0..100).full_queue_delay(None), None);
        assert_eq!(train(0..0).idle_transit(Bytes::new(1500), Rate::mbit(12)), None);
        // A few late packets do not make a queue.
        let mut arrivals =
            changed(0..100, |_, arrival| arrival.received = arrival.sent + MICRO(500)).arrivals;
        arrivals[40].received += MICRO(10_000);
        assert_eq!(usual_longest_delay(&arrivals), Duration::ZERO);
        arrivals[50..60].iter_mut().for_each(|arrival| arrival.received += MICRO(700));
        assert_eq!(usual_longest_delay(&arrivals), MICRO(700));
        assert_eq!(usual_longest_delay(&[]), Duration::ZERO);
    }
}
