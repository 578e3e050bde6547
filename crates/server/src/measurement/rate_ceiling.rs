//! The ceiling of `--measure=RATE`: one rate for all that the endpoint sends and receives, divided
//! among the clients, then among the probes of each, then among the flows of each probe; what a
//! paced train leaves of its part, the others get.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;
use longhaul_sys::send_options::set_max_pacing_rate;
use parking_lot::Mutex;

/// How long the least allowance of a probe is known after its last flow: a probe asks for it within
/// its ten seconds.
const KEPT: Duration = Duration::from_secs(60);
/// The most probes whose least allowance is known; further ones learn the present one.
const MAX_KEPT: usize = 1024;
/// The most of them of one client, which may make numbers up.
const MAX_KEPT_PER_CLIENT: usize = 16;

/// A probe of a client; several run at once behind one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProbeId {
    pub(super) client: IpAddr,
    pub(super) number: u64,
}

impl ProbeId {
    /// The number of all requests of a client that have none.
    pub(super) const UNNUMBERED: u64 = 0;
}

/// A rate that flows share. The kernel paces streams that are sent, whose bytes this process never
/// touches (sendfile).
#[derive(Debug)]
pub(super) struct RateCeiling {
    pub(super) total: Rate,
    flows: Mutex<Flows>,
}

/// What is being sent and received.
#[derive(Debug, Default)]
struct Flows {
    next: u64,
    active: BTreeMap<u64, Flow>,
    least: BTreeMap<ProbeId, LeastAllowance>,
}

/// The least that a probe was allowed while it had flows, in bits/s.
#[derive(Debug)]
struct LeastAllowance {
    rate: u64,
    updated: Instant,
}

#[derive(Debug)]
struct Flow {
    probe: ProbeId,
    /// The socket that the kernel paces; none where this process keeps to the share.
    socket: Option<OwnedFd>,
    /// The most that it can use, in bits/s.
    demand: u64,
    /// What it may have, in bits/s: read for each packet of a train, without the lock.
    share: Arc<AtomicU64>,
}

/// A part of the ceiling; the others get it back when it is dropped.
#[derive(Debug)]
pub(super) struct CeilingShare {
    ceiling: Arc<RateCeiling>,
    number: u64,
    share: Arc<AtomicU64>,
}

impl RateCeiling {
    pub(super) fn new(total: Rate) -> Arc<Self> {
        Arc::new(Self { total, flows: Mutex::default() })
    }

    /// Returns the least that `probe` may have, all of its flows together, now and since its first
    /// flow.
    pub(super) fn allowed_to(&self, probe: ProbeId) -> Rate {
        let flows = self.flows.lock();
        let now = allowance(self.total, &flows.demands(), probe);
        let least = flows.least.get(&probe).map_or(now, |least| least.rate.min(now));
        Rate::bits_per_sec(least.max(1))
    }

    /// Paces a stream to `probe` within the ceiling while the share lives.
    ///
    /// # Errors
    /// What the kernel says of pacing this socket.
    pub(super) fn join_stream(
        self: &Arc<Self>,
        probe: ProbeId,
        socket: BorrowedFd<'_>,
    ) -> io::Result<CeilingShare> {
        let share = self.join(probe, Some(socket.try_clone_to_owned()?), None);
        // The kernel has been asked already; this asks once more for its answer.
        set_max_pacing_rate(socket, share.rate())?;
        Ok(share)
    }

    /// Counts a flow that keeps to [`CeilingShare::rate`] by itself, and uses `demand` at most.
    pub(super) fn join_paced(self: &Arc<Self>, probe: ProbeId, demand: Option<Rate>) -> CeilingShare {
        self.join(probe, None, demand)
    }

    fn join(self: &Arc<Self>, probe: ProbeId, socket: Option<OwnedFd>, demand: Option<Rate>) -> CeilingShare {
        let mut flows = self.flows.lock();
        flows.next += 1;
        let number = flows.next;
        let share = Arc::new(AtomicU64::new(1));
        let demand = demand.map_or(u64::MAX, Rate::as_bits_per_sec);
        flows.active.insert(number, Flow { probe, socket, demand, share: Arc::clone(&share) });
        flows.share_out(self.total);
        CeilingShare { ceiling: Arc::clone(self), number, share }
    }
}

impl Flows {
    /// Lowers what is known as the least allowance of each probe that has flows. Requests without a
    /// number may belong to several probes.
    fn record_least(&mut self, total: Rate, demands: &Demands) {
        self.least.retain(|probe, least| demands.contains_key(probe) || least.updated.elapsed() < KEPT);
        for probe in demands.keys().filter(|probe| probe.number != ProbeId::UNNUMBERED) {
            let of_client = self.least.keys().filter(|known| known.client == probe.client).count();
            let is_full = self.least.len() >= MAX_KEPT || of_client >= MAX_KEPT_PER_CLIENT;
            if is_full && !self.least.contains_key(probe) {
                continue;
            }
            let (rate, updated) = (allowance(total, demands, *probe), Instant::now());
            let least = self.least.entry(*probe).or_insert(LeastAllowance { rate, updated });
            *least = LeastAllowance { rate: least.rate.min(rate), updated };
        }
    }

    /// Returns the most that each probe can use.
    fn demands(&self) -> Demands {
        let mut demands = Demands::new();
        for flow in self.active.values() {
            let demand = demands.entry(flow.probe).or_default();
            *demand = demand.saturating_add(flow.demand);
        }
        demands
    }

    fn share_out(&mut self, total: Rate) {
        let demands = self.demands();
        self.record_least(total, &demands);
        for (probe, of_probe) in divide_among_probes(total, &demands) {
            let own: Vec<_> = self.active.values().filter(|flow| flow.probe == probe).collect();
            let shares = divide(of_probe, own.iter().map(|flow| flow.demand));
            for (flow, share) in own.iter().zip(shares) {
                let share = share.max(1);
                flow.share.store(share, Ordering::Relaxed);
                if let Some(socket) = &flow.socket {
                    // One that has been closed meanwhile sends nothing.
                    let _ = set_max_pacing_rate(socket, Rate::bits_per_sec(share));
                }
            }
        }
    }
}

/// What probes can use, in bits/s.
type Demands = BTreeMap<ProbeId, u64>;

/// Divides `total` among clients, and the part of each among its probes.
fn divide_among_probes(total: Rate, demands: &Demands) -> Vec<(ProbeId, u64)> {
    let mut of_clients = BTreeMap::<IpAddr, u64>::new();
    for (probe, demand) in demands {
        let sum = of_clients.entry(probe.client).or_default();
        *sum = sum.saturating_add(*demand);
    }
    let parts = divide(total.as_bits_per_sec(), of_clients.values().copied());
    let mut shares = Vec::new();
    for (client, part) in of_clients.keys().zip(parts) {
        let own = || demands.iter().filter(|(probe, _)| probe.client == *client);
        shares.extend(own().map(|(probe, _)| *probe).zip(divide(part, own().map(|(_, demand)| *demand))));
    }
    shares
}

/// Returns what `probe` can have beside the others if it uses all that it is given, in bits/s.
fn allowance(total: Rate, demands: &Demands, probe: ProbeId) -> u64 {
    let mut demands = demands.clone();
    demands.insert(probe, u64::MAX);
    let shares = divide_among_probes(total, &demands);
    shares.into_iter().find(|(other, _)| *other == probe).map_or(0, |(_, share)| share)
}

/// Divides `total` equally, but gives none more than its demand (max-min fairness).
fn divide(total: u64, demands: impl Iterator<Item = u64>) -> Vec<u64> {
    let demands: Vec<_> = demands.collect();
    let mut order: Vec<_> = (0..demands.len()).collect();
    order.sort_unstable_by_key(|index| demands[*index]);
    let (mut left, mut shares) = (total, vec![0; demands.len()]);
    for (given, index) in order.iter().enumerate() {
        shares[*index] = demands[*index].min(left / (demands.len() - given) as u64);
        left -= shares[*index];
    }
    shares
}

impl CeilingShare {
    /// Returns the rate that the flow may have now.
    pub(super) fn rate(&self) -> Rate {
        Rate::bits_per_sec(self.share.load(Ordering::Relaxed))
    }
}

impl Drop for CeilingShare {
    fn drop(&mut self) {
        let mut flows = self.ceiling.flows.lock();
        flows.active.remove(&self.number);
        flows.share_out(self.ceiling.total);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    const ONE: ProbeId = probe(1, ProbeId::UNNUMBERED);
    const OTHER: ProbeId = probe(2, ProbeId::UNNUMBERED);

    const fn probe(client: u8, number: u64) -> ProbeId {
        ProbeId { client: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, client)), number }
    }

    fn mbit(rate: Rate) -> u64 {
        rate.as_bits_per_sec() / 1_000_000
    }

    fn ceiling() -> Arc<RateCeiling> {
        RateCeiling::new(Rate::bits_per_sec(90_000_000))
    }

    #[test]
    fn clients_have_equal_parts_and_what_a_paced_train_leaves() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let [one, two] = [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let ceiling = ceiling();
        assert_eq!(mbit(ceiling.allowed_to(ONE)), 90);
        let first = ceiling.join_stream(ONE, one.as_fd()).unwrap();
        assert_eq!(mbit(first.rate()), 90);
        let second = ceiling.join_stream(ONE, two.as_fd()).unwrap();
        let train = ceiling.join_paced(OTHER, None);
        assert_eq!([&first, &second, &train].map(|share| mbit(share.rate())), [22, 22, 45]);
        assert_eq!([ONE, OTHER].map(|client| mbit(ceiling.allowed_to(client))), [45, 45]);
        drop((first, train));
        assert_eq!((mbit(second.rate()), mbit(ceiling.total)), (90, 90));
        let ceiling = self::ceiling();
        let slow = ceiling.join_paced(ONE, Some(Rate::bits_per_sec(9_000_000)));
        let fast = ceiling.join_paced(OTHER, None);
        assert_eq!((mbit(slow.rate()), mbit(fast.rate())), (9, 81));
        assert_eq!(mbit(ceiling.allowed_to(OTHER)), 81);
        let own = ceiling.join_paced(ONE, None);
        assert_eq!([&slow, &fast, &own].map(|share| mbit(share.rate())), [9, 45, 36]);
    }

    #[test]
    fn clients_that_make_numbers_up_or_share_bits_still_have_a_rate() {
        let ceiling = ceiling();
        (1..=2 * MAX_KEPT as u64).for_each(|number| drop(ceiling.join_paced(probe(1, number), None)));
        let honest = probe(2, 7);
        let both = [probe(1, 1), honest].map(|probe| ceiling.join_paced(probe, None));
        drop(both);
        assert_eq!(mbit(ceiling.allowed_to(honest)), 45);
        let ceiling = RateCeiling::new(Rate::bits_per_sec(1));
        let both = [ONE, OTHER].map(|client| ceiling.join_paced(client, None));
        assert_eq!(both.map(|share| share.rate()), [Rate::bits_per_sec(1); 2]);
    }

    #[test]
    fn probes_of_one_client_share_its_part_and_learn_the_least() {
        let ceiling = ceiling();
        let [first, second] = [1, 2].map(|number| probe(1, number));
        let flows = [first, first, second].map(|probe| ceiling.join_paced(probe, None));
        assert_eq!(flows.each_ref().map(|share| mbit(share.rate())), [22, 22, 45]);
        let other = ceiling.join_paced(OTHER, None);
        assert_eq!([first, second, OTHER].map(|probe| mbit(ceiling.allowed_to(probe))), [22, 22, 45]);
        drop((other, flows));
        // What was measured while the others shared is bounded by what was allowed then.
        assert_eq!([first, second, OTHER].map(|probe| mbit(ceiling.allowed_to(probe))), [22, 22, 90]);
        assert_eq!(mbit(ceiling.allowed_to(probe(1, 3))), 90);
    }
}
