//! Sends a packet train, back to back or paced.

use std::io;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use longhaul_core::probe::message::UdpPacket;
use longhaul_core::probe::packet_train::UDP_HEADERS;
use longhaul_core::probe::train_search::TrainPlan;
use longhaul_core::units::{Bytes, Rate};

/// Sleeping is not finer than this; packets that are due meanwhile leave together.
const NAP: Duration = Duration::from_micros(60);
/// How often an unpaced train checks whether it is still to be sent.
const PACKETS_PER_CHECK: u32 = 256;
/// The longest sleep between two such checks of a paced train.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// A train to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Train {
    pub(super) number: u32,
    pub(super) plan: TrainPlan,
    /// The highest rate.
    pub(super) ceiling: Option<Rate>,
    /// The most bytes of packets, with the headers of UDP and IP.
    pub(super) most: Bytes,
    /// When the train ends at the latest.
    pub(super) deadline: Instant,
}

/// How a train ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrainEnd {
    /// All of it was sent, or as much as is allowed.
    Sent,
    /// The receiver has gone, or the server ends.
    Cut,
}

impl Train {
    /// Sends the train over a connected socket; returns the bytes of its packets, and how it ended.
    pub(super) fn send(
        &self,
        socket: &UdpSocket,
        clock: Instant,
        goes_on: &dyn Fn() -> bool,
    ) -> (Bytes, TrainEnd) {
        let Self { number, plan, ceiling, most, deadline } = *self;
        let size = plan.message + UDP_HEADERS;
        let affordable = u32::try_from(most.get() / size.get()).unwrap_or(u32::MAX);
        let count = plan.count.min(affordable);
        let rate = match (plan.rate, ceiling) {
            (Some(rate), Some(ceiling)) => Some(rate.min(ceiling)),
            (rate, ceiling) => rate.or(ceiling),
        };
        let gap = rate.map_or(Duration::ZERO, |rate| rate.time_for(size));
        let mut message = vec![0; plan.message.as_usize()];
        let started = Instant::now();
        for packet in 0..count {
            let cut = (size * u64::from(packet), TrainEnd::Cut);
            let is_due_in_time =
                started.checked_add(gap.saturating_mul(packet)).is_some_and(|due| due <= deadline);
            if !is_due_in_time || (packet % PACKETS_PER_CHECK == 0 && Instant::now() > deadline) {
                return cut;
            }
            if packet % PACKETS_PER_CHECK == PACKETS_PER_CHECK - 1 && !goes_on() {
                return cut;
            }
            loop {
                let early = gap.saturating_mul(packet).saturating_sub(started.elapsed());
                if early <= NAP {
                    break;
                }
                std::thread::sleep(early.min(LONGEST_SLEEP));
                if early > LONGEST_SLEEP && !goes_on() {
                    return cut;
                }
            }
            UdpPacket { is_echo: false, train: number, packet, sent: clock.elapsed() }.write(&mut message);
            match socket.send(&message) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return cut,
                // A full device queue loses the packet, as a full queue of the path would.
                Ok(_) | Err(_) => {}
            }
        }
        (size * u64::from(count), TrainEnd::Sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        (near, far)
    }

    fn train(count: u32, rate: Option<u64>) -> Train {
        let plan = TrainPlan { count, message: Bytes::new(100), rate: rate.map(Rate::bits_per_sec) };
        let deadline = Instant::now() + Duration::from_secs(30);
        Train { number: 5, plan, ceiling: None, most: Bytes::mib(1), deadline }
    }

    fn received(far: &UdpSocket) -> Vec<UdpPacket> {
        let mut buffer = [0; 200];
        std::iter::from_fn(|| {
            far.recv(&mut buffer).ok().and_then(|length| UdpPacket::parse(&buffer[..length]))
        })
        .collect()
    }

    #[test]
    fn every_packet_has_its_number_and_its_time() {
        let (near, far) = pair();
        assert_eq!(train(20, None).send(&near, Instant::now(), &|| true), (Bytes::new(2560), TrainEnd::Sent));
        let packets = received(&far);
        assert_eq!(
            packets.iter().map(|packet| packet.packet).collect::<Vec<_>>(),
            (0..20).collect::<Vec<_>>()
        );
        assert!(packets.iter().all(|packet| packet.train == 5 && !packet.is_echo));
        assert!(packets.windows(2).all(|two| two[0].sent <= two[1].sent));
    }

    #[test]
    fn pace_and_ceiling_bound_the_rate() {
        let (near, _far) = pair();
        // 20 packets of 128 bytes at 512 kbit/s take 38 ms to the last.
        for slow in [
            train(20, Some(512_000)),
            Train { ceiling: Some(Rate::bits_per_sec(512_000)), ..train(20, None) },
        ] {
            let started = Instant::now();
            slow.send(&near, started, &|| true);
            assert!(started.elapsed() >= Duration::from_millis(37), "{:?}", started.elapsed());
        }
    }

    #[test]
    fn no_more_is_sent_than_is_left() {
        let (near, far) = pair();
        let poor = Train { most: Bytes::new(1300), ..train(1000, None) };
        assert_eq!(poor.send(&near, Instant::now(), &|| true).0, Bytes::new(1280));
        assert_eq!(received(&far).len(), 10);
    }

    #[test]
    fn train_ends_by_its_deadline_and_when_it_is_no_longer_wanted() {
        let (near, far) = pair();
        // The second packet would be due after 17 minutes.
        let started = Instant::now();
        let (sent, end) = train(2, Some(1)).send(&near, started, &|| true);
        assert_eq!((sent, end), (Bytes::new(128), TrainEnd::Cut));
        assert!(started.elapsed() < Duration::from_secs(5) && received(&far).len() == 1);
        let (sent, end) = train(2, Some(128)).send(&near, Instant::now(), &|| false);
        assert_eq!((sent, end), (Bytes::new(128), TrainEnd::Cut), "it would be due after 8 s");
    }

    #[test]
    fn train_to_a_closed_port_is_cut() {
        let (near, far) = pair();
        drop(far);
        let (sent, end) = train(10_000, None).send(&near, Instant::now(), &|| true);
        assert_eq!(end, TrainEnd::Cut);
        assert!(sent < Bytes::new(1_000_000));
    }
}
