//! Sends a packet train, back to back or paced.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use longhaul_core::probe::message::{LARGEST_MESSAGE, UdpPacket};
use longhaul_core::probe::train_search::TrainPlan;
use longhaul_core::units::Bytes;
use longhaul_sys::send_options::set_segment_size;

use super::rate_ceiling::CeilingShare;

/// Sleeping is not finer than this; packets that are due meanwhile leave together.
const NAP: Duration = Duration::from_micros(60);
/// After so many packets a train checks whether it is still to be sent.
const PACKETS_PER_CHECK: u32 = 256;
/// The most lateness that a paced train makes up for by sending faster; after a longer delay the
/// rest of the train shifts. Timers of an idle host are late by less.
const CATCH_UP: Duration = Duration::from_millis(2);
/// The longest sleep between two such checks of a paced train.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A train to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Train<'a> {
    pub(super) number: u32,
    pub(super) plan: TrainPlan,
    /// What each message adds to at the IP layer.
    pub(super) headers: Bytes,
    /// The highest rate.
    pub(super) share: Option<&'a CeilingShare>,
    /// The most bytes of packets, with the headers of UDP and IP.
    pub(super) most: Bytes,
    /// When the train ends at the latest.
    pub(super) deadline: Instant,
}

impl Train<'_> {
    /// Sends the train over a connected socket; returns the bytes of its packets, and whether all
    /// that is allowed was sent: it is cut if the receiver closes its port, at the deadline, and
    /// where `goes_on` returns false.
    pub(super) fn send(
        &self,
        socket: &UdpSocket,
        clock: Instant,
        goes_on: &dyn Fn() -> bool,
    ) -> (Bytes, bool) {
        let Self { number, plan, headers, share, most, deadline } = *self;
        let size = plan.message + headers;
        let affordable = u32::try_from(most.get() / size.get()).unwrap_or(u32::MAX);
        let count = plan.count.min(affordable);
        // Others may begin or cease to share the ceiling while the train is sent.
        let gap = || {
            let rates = [plan.rate, share.map(CeilingShare::rate)];
            rates.into_iter().flatten().min().map_or(Duration::ZERO, |rate| rate.time_for(size))
        };
        let mut batch = Batch::new(socket, plan.message);
        let started = Instant::now();
        let (mut due, mut packet, mut unchecked) = (Duration::ZERO, 0, 0);
        while packet < count {
            let cut = (size * u64::from(packet), false);
            let is_due_in_time = started.checked_add(due).is_some_and(|due| due <= deadline);
            if !is_due_in_time
                || (unchecked >= PACKETS_PER_CHECK && (Instant::now() > deadline || !goes_on()))
            {
                return cut;
            }
            unchecked %= PACKETS_PER_CHECK;
            loop {
                let early = due.saturating_sub(started.elapsed());
                if early <= NAP {
                    break;
                }
                std::thread::sleep(early.min(LONGEST_SLEEP));
                if early > LONGEST_SLEEP && !goes_on() {
                    return cut;
                }
            }
            let gap = gap();
            due = due.max(started.elapsed().saturating_sub(CATCH_UP));
            let behind = (started.elapsed() + NAP).saturating_sub(due);
            let are_due = behind
                .as_nanos()
                .checked_div(gap.as_nanos())
                .map_or(count, |more| u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1));
            let first = UdpPacket { is_echo: false, train: number, packet, sent: clock.elapsed() };
            match batch.send(first, are_due.min(count - packet)) {
                Ok(sent) => {
                    packet += sent;
                    unchecked += sent;
                    due = due.saturating_add(gap.saturating_mul(sent));
                }
                Err(_) => return cut,
            }
        }
        (size * u64::from(count), true)
    }
}

/// Packets that are handed to the kernel in one call (UDP_SEGMENT, Linux 4.18): a call for each is
/// slower than a path of 1 Gbit/s on a small host. Where the kernel or the device refuses it, there
/// is a call for each.
struct Batch<'a> {
    socket: &'a UdpSocket,
    message: usize,
    /// The most packets of one call.
    most: u32,
    buffer: Vec<u8>,
}

impl<'a> Batch<'a> {
    /// UDP_MAX_SEGMENTS of Linux before 6.9.
    const SEGMENTS: usize = 64;

    fn new(socket: &'a UdpSocket, message: Bytes) -> Self {
        let length = message.as_usize();
        let most = (LARGEST_MESSAGE.as_usize() / length.max(1)).clamp(1, Self::SEGMENTS);
        let most = if most > 1 && set_segment_size(socket, message).is_ok() { most } else { 1 };
        let most_packets = u32::try_from(most).unwrap_or(1);
        Self { socket, message: length, most: most_packets, buffer: vec![0; length * most] }
    }

    /// Sends up to `count` packets, of which `first` is the first; returns how many.
    ///
    /// # Errors
    /// ConnectionRefused where the receiver has gone.
    fn send(&mut self, first: UdpPacket, count: u32) -> io::Result<u32> {
        let count = count.min(self.most).max(1);
        let messages = self.buffer.chunks_mut(self.message).take(count as usize);
        for (message, packet) in messages.zip(first.packet..) {
            UdpPacket { packet, ..first }.write(message);
        }
        match self.socket.send(&self.buffer[..self.message * count as usize]) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(error),
            Err(error) if count > 1 && error.kind() != io::ErrorKind::WouldBlock => {
                tracing::debug!("packets of a train are sent one by one: {error}");
                self.most = 1;
                self.stop_segmenting();
                self.send(first, 1)
            }
            // A full device queue loses the packets, as a full queue of the path would.
            Ok(_) | Err(_) => Ok(count),
        }
    }

    fn stop_segmenting(&self) {
        // A kernel that does not know the option has not segmented.
        let _ = set_segment_size(self.socket, Bytes::ZERO);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Echoes, which have other sizes, are sent over the same socket.
        self.stop_segmenting();
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::super::rate_ceiling::{ProbeId, RateCeiling};
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        (near, far)
    }

    fn train(count: u32, rate: Option<u64>) -> Train<'static> {
        let plan = TrainPlan { count, message: Bytes::new(100), rate: rate.map(Rate::bits_per_sec) };
        let deadline = Instant::now() + Duration::from_secs(30);
        Train { number: 5, plan, headers: Bytes::new(28), share: None, most: Bytes::mib(1), deadline }
    }

    fn received(far: &UdpSocket) -> Vec<UdpPacket> {
        let mut buffer = [0; 400];
        std::iter::from_fn(|| {
            far.recv(&mut buffer).ok().and_then(|length| UdpPacket::parse(&buffer[..length]))
        })
        .collect()
    }

    #[test]
    fn packets_of_several_calls_are_all_sent_once_with_number_and_time() {
        let (near, far) = pair();
        // Two full batches and a half; the second train, of another size, is not cut by the first
        // one's.
        for (message, count) in [(100, 160), (300, 70)] {
            let plan = TrainPlan { message: Bytes::new(message), ..train(count, None).plan };
            let sent = Train { plan, ..train(count, None) }.send(&near, Instant::now(), &|| true);
            assert_eq!(sent, (Bytes::new((message + 28) * u64::from(count)), true));
            let packets = received(&far);
            let numbers: Vec<_> = packets.iter().map(|packet| packet.packet).collect();
            assert_eq!(numbers, (0..count).collect::<Vec<_>>());
            assert!(packets.iter().all(|packet| packet.train == 5 && !packet.is_echo));
            assert!(packets.windows(2).all(|two| two[0].sent <= two[1].sent));
        }
        near.send(&[1; 350]).unwrap();
        assert_eq!(far.recv(&mut [0; 400]).unwrap(), 350);
    }

    #[test]
    fn paced_trains_keep_pace_ceiling_and_catch_up_without_bursts() {
        let (near, _far) = pair();
        // 20 packets of 128 bytes at 512 kbit/s take 38 ms to the last.
        let probe = ProbeId { client: [127, 0, 0, 1].into(), number: ProbeId::UNNUMBERED };
        let share = RateCeiling::new(Rate::bits_per_sec(512_000)).join_paced(probe, None);
        for slow in [train(20, Some(512_000)), Train { share: Some(&share), ..train(20, None) }] {
            let started = Instant::now();
            slow.send(&near, started, &|| true);
            assert!(started.elapsed() >= Duration::from_millis(37), "{:?}", started.elapsed());
        }
        const HELD_UP: Duration = Duration::from_millis(80);
        // 600 packets of 128 bytes at 6.144 Mbit/s take 100 ms; after 256 of them the sender is
        // held up once.
        let held_up = std::cell::Cell::new(false);
        let hold_up = || {
            if !held_up.replace(true) {
                std::thread::sleep(HELD_UP);
            }
            true
        };
        let started = Instant::now();
        let (sent, is_whole) = train(600, Some(6_144_000)).send(&near, started, &hold_up);
        assert_eq!((sent, is_whole), (Bytes::new(600 * 128), true));
        let least = Duration::from_millis(99) + HELD_UP - 2 * CATCH_UP;
        assert!(held_up.get() && started.elapsed() >= least, "{:?}", started.elapsed());
    }

    #[test]
    fn no_more_is_sent_than_is_left() {
        let (near, far) = pair();
        let poor = Train { most: Bytes::new(1300), ..train(1000, None) };
        assert_eq!(poor.send(&near, Instant::now(), &|| true).0, Bytes::new(1280));
        assert_eq!(received(&far).len(), 10);
        let by_ipv6 = Train { headers: Bytes::new(48), ..poor };
        assert_eq!(by_ipv6.send(&near, Instant::now(), &|| true).0, Bytes::new(1184));
    }

    #[test]
    fn train_ends_by_its_deadline_at_a_closed_port_and_when_it_is_no_longer_wanted() {
        let (near, far) = pair();
        // The second packet would be due after 17 minutes.
        let (sent, is_whole) = train(2, Some(1)).send(&near, Instant::now(), &|| true);
        assert_eq!((sent, is_whole, received(&far).len()), (Bytes::new(128), false, 1));
        let (sent, is_whole) = train(2, Some(128)).send(&near, Instant::now(), &|| false);
        assert_eq!((sent, is_whole), (Bytes::new(128), false), "it would be due after 8 s");
        drop(far);
        let (sent, is_whole) = train(10_000, None).send(&near, Instant::now(), &|| true);
        assert!(!is_whole && sent < Bytes::new(1_000_000), "the port is closed: {sent}");
    }
}
