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
/// How often a train looks whether it is still to be sent.
const LOOK: u32 = 4096;

/// A train to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Train {
    pub(super) number: u32,
    pub(super) plan: TrainPlan,
    /// The highest rate.
    pub(super) ceiling: Option<Rate>,
    /// The most bytes of messages.
    pub(super) most: Bytes,
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
    /// Sends the train over a connected socket; returns the bytes of messages, and how it ended.
    pub(super) fn send(
        &self,
        socket: &UdpSocket,
        clock: Instant,
        goes_on: &dyn Fn() -> bool,
    ) -> (Bytes, TrainEnd) {
        let Self { number, plan, ceiling, most } = *self;
        let affordable = u32::try_from(most.get() / plan.message.get().max(1)).unwrap_or(u32::MAX);
        let count = plan.count.min(affordable);
        let rate = match (plan.rate, ceiling) {
            (Some(rate), Some(ceiling)) => Some(rate.min(ceiling)),
            (rate, ceiling) => rate.or(ceiling),
        };
        let gap = rate.map(|rate| rate.time_for(plan.message + UDP_HEADERS));
        let mut message = vec![0; plan.message.as_usize()];
        let started = Instant::now();
        for packet in 0..count {
            if packet % LOOK == LOOK - 1 && !goes_on() {
                return (plan.message * u64::from(packet), TrainEnd::Cut);
            }
            if let Some(gap) = gap {
                let early = gap.saturating_mul(packet).saturating_sub(started.elapsed());
                if early > NAP {
                    std::thread::sleep(early);
                }
            }
            UdpPacket { is_echo: false, train: number, packet, sent: clock.elapsed() }.write(&mut message);
            match socket.send(&message) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return (plan.message * u64::from(packet), TrainEnd::Cut);
                }
                // A full device queue loses the packet, as a full queue of the path would.
                Ok(_) | Err(_) => {}
            }
        }
        (plan.message * u64::from(count), TrainEnd::Sent)
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
        Train { number: 5, plan, ceiling: None, most: Bytes::mib(1) }
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
        assert_eq!(train(20, None).send(&near, Instant::now(), &|| true), (Bytes::new(2000), TrainEnd::Sent));
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
        let poor = Train { most: Bytes::new(1050), ..train(1000, None) };
        assert_eq!(poor.send(&near, Instant::now(), &|| true).0, Bytes::new(1000));
        assert_eq!(received(&far).len(), 10);
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
