//! The ceiling of `--measure=RATE`: one rate for all that the endpoint sends and receives, divided among the clients, then among the
//! flows of each; what a paced train leaves of its part, the others get.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::units::Rate;
use longhaul_sys::send_options::set_max_pacing_rate;

/// A rate that flows share. The kernel paces streams that are sent, whose bytes this process never touches (sendfile).
#[derive(Debug)]
pub(super) struct RateCeiling {
    total: Rate,
    flows: Mutex<Flows>,
}

/// What is being sent and received.
#[derive(Debug, Default)]
struct Flows {
    next: u64,
    active: BTreeMap<u64, Flow>,
}

#[derive(Debug)]
struct Flow {
    client: IpAddr,
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

    /// Returns the whole rate.
    pub(super) fn total(&self) -> Rate {
        self.total
    }

    /// Returns what `client` may have now, all of its flows together.
    pub(super) fn allowed_to(&self, client: IpAddr) -> Rate {
        let mut demands = self.flows().demands();
        demands.insert(client, u64::MAX);
        let shares = divide(self.total.as_bits_per_sec(), demands.values().copied());
        let own = demands.keys().zip(shares).find(|(other, _)| **other == client);
        Rate::bits_per_sec(own.map_or(0, |(_, share)| share).max(1))
    }

    /// Paces a stream to `client` within the ceiling while the share lives.
    ///
    /// # Errors
    /// What the kernel says of pacing this socket.
    pub(super) fn join_stream(
        self: &Arc<Self>,
        client: IpAddr,
        socket: BorrowedFd<'_>,
    ) -> io::Result<CeilingShare> {
        let share = self.join(client, Some(socket.try_clone_to_owned()?), None);
        // The kernel has been asked already; this asks once more for its answer.
        set_max_pacing_rate(socket, share.rate())?;
        Ok(share)
    }

    /// Counts a flow that keeps to [`CeilingShare::rate`] by itself, and uses `demand` at most.
    pub(super) fn join_paced(self: &Arc<Self>, client: IpAddr, demand: Option<Rate>) -> CeilingShare {
        self.join(client, None, demand)
    }

    fn join(self: &Arc<Self>, client: IpAddr, socket: Option<OwnedFd>, demand: Option<Rate>) -> CeilingShare {
        let mut flows = self.flows();
        flows.next += 1;
        let number = flows.next;
        let share = Arc::new(AtomicU64::new(1));
        let demand = demand.map_or(u64::MAX, Rate::as_bits_per_sec);
        flows.active.insert(number, Flow { client, socket, demand, share: Arc::clone(&share) });
        flows.share_out(self.total);
        CeilingShare { ceiling: Arc::clone(self), number, share }
    }

    fn flows(&self) -> MutexGuard<'_, Flows> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flows {
    /// Returns the most that each client can use.
    fn demands(&self) -> BTreeMap<IpAddr, u64> {
        let mut demands = BTreeMap::new();
        for flow in self.active.values() {
            let demand: &mut u64 = demands.entry(flow.client).or_default();
            *demand = demand.saturating_add(flow.demand);
        }
        demands
    }

    fn share_out(&self, total: Rate) {
        let demands = self.demands();
        let of_clients = divide(total.as_bits_per_sec(), demands.values().copied());
        for (client, of_client) in demands.keys().zip(of_clients) {
            let own: Vec<_> = self.active.values().filter(|flow| flow.client == *client).collect();
            let shares = divide(of_client, own.iter().map(|flow| flow.demand));
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
        let mut flows = self.ceiling.flows();
        flows.active.remove(&self.number);
        flows.share_out(self.ceiling.total);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn mbit(rate: Rate) -> u64 {
        rate.as_bits_per_sec() / 1_000_000
    }

    #[test]
    fn clients_have_equal_parts_however_many_streams_they_have() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let [one, two] = [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let ceiling = RateCeiling::new(Rate::bits_per_sec(90_000_000));
        assert_eq!(mbit(ceiling.allowed_to(ONE)), 90);
        let first = ceiling.join_stream(ONE, one.as_fd()).unwrap();
        assert_eq!(mbit(first.rate()), 90);
        let second = ceiling.join_stream(ONE, two.as_fd()).unwrap();
        let train = ceiling.join_paced(OTHER, None);
        assert_eq!([&first, &second, &train].map(|share| mbit(share.rate())), [22, 22, 45]);
        assert_eq!([ONE, OTHER].map(|client| mbit(ceiling.allowed_to(client))), [45, 45]);
        drop(first);
        drop(train);
        assert_eq!((mbit(second.rate()), mbit(ceiling.total())), (90, 90));
    }

    #[test]
    fn what_a_paced_train_leaves_goes_to_the_others() {
        let ceiling = RateCeiling::new(Rate::bits_per_sec(90_000_000));
        let slow = ceiling.join_paced(ONE, Some(Rate::bits_per_sec(9_000_000)));
        let fast = ceiling.join_paced(OTHER, None);
        assert_eq!((mbit(slow.rate()), mbit(fast.rate())), (9, 81));
        assert_eq!(mbit(ceiling.allowed_to(OTHER)), 81);
        let own = ceiling.join_paced(ONE, None);
        assert_eq!([&slow, &fast, &own].map(|share| mbit(share.rate())), [9, 45, 36]);
    }

    #[test]
    fn more_flows_than_bits_still_have_a_rate() {
        let ceiling = RateCeiling::new(Rate::bits_per_sec(1));
        let both = [ONE, OTHER].map(|client| ceiling.join_paced(client, None));
        assert_eq!(both.map(|share| share.rate()), [Rate::bits_per_sec(1); 2]);
    }
}
