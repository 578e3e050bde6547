//! Paces sending sockets: reads them, asks [`Pacer`](longhaul_core::tune::pace::Pacer), and sets SO_MAX_PACING_RATE.
//!
//! Bytes on their way touch nothing here: one thread has descriptors of its own and looks at each socket some
//! hundred times a second, as long as something is being sent on it.

mod driven;
mod whole;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use longhaul_core::pace::Pace;
use longhaul_core::tune::pace::{Known, first_pace};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::host;
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use socket2::{Domain, Socket, Type};

use crate::threads::lock;
use driven::{AT_FIRST, BBR, Driven, hand_over};

/// The thread that paces, from the first socket whose pace is to be found until this and the last [`Paced`] are gone.
#[derive(Debug, Default)]
pub struct Pacing {
    orders: Mutex<Option<Sender<Order>>>,
    next: AtomicU64,
}

/// What pacing begins with, and who hears what it comes to.
#[derive(Default)]
pub struct Start {
    /// What the path held when it was last used.
    pub known: Option<Rate>,
    /// Who hears of it.
    pub hears: Option<Box<dyn Hears>>,
}

/// Hears in the pacing thread what a path holds: when its rate is found, at most once a second from then on, and when sending rests.
pub trait Hears: Send {
    /// Returns how many connections share the path at the moment, the one that is paced among them.
    fn sharing(&self) -> u32;

    /// Takes in what was found when so many shared the path.
    fn hear(&self, found: Finding);
}

/// What a path was found to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// Its rate, for all connections that share it together, and its RTT.
    pub known: Known,
    /// The size of a segment.
    pub segment: Bytes,
    /// The largest packet that arrives, in bytes, where the kernel tells.
    pub mtu: Option<u32>,
}

/// A socket that is being paced, until this is dropped.
#[derive(Debug)]
pub struct Paced {
    number: u64,
    orders: Sender<Order>,
}

enum Order {
    Add(u64, Box<Driven>),
    Rest(u64),
    Resume(u64),
    Remove(u64),
}

/// So many sockets are looked at as often as their controllers ask; more, less often.
const AT_ONCE: u32 = 32;

/// Which congestion control a paced socket has, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Congestion {
    /// The one to connect or listen with; `None` leaves it to the kernel.
    pub at_first: Option<String>,
    /// The one for [`Pacing::take`].
    pub later: Option<String>,
}

impl Congestion {
    /// Plans for a socket that is to have `asked`, or what the host has by default.
    pub fn plan(asked: Option<&str>, pace: Pace) -> Self {
        let is_bbr = |name: &String| name.as_bytes() == BBR;
        let wanted = asked.map(str::to_owned).or_else(|| host::congestion_control().filter(is_bbr));
        let put_off = pace == Pace::Auto && wanted.as_ref().is_some_and(is_bbr);
        let at_first =
            if put_off { Some(String::from_utf8_lossy(AT_FIRST).into_owned()) } else { wanted.clone() };
        Self { at_first, later: wanted }
    }

    /// Makes sure that the kernel has what was asked for, on a socket of no other use.
    ///
    /// # Errors
    /// What the kernel says of it.
    pub fn check(name: &str) -> io::Result<()> {
        Socket::new(Domain::IPV4, Type::STREAM, None)?.set_tcp_congestion(name.as_bytes())
    }
}

impl Pacing {
    /// Paces a connected `socket` as `pace` says; once that has slow start behind it, under `congestion` where given.
    ///
    /// Where the rate is to be found, it begins as `start` says: the first pace is in force when this returns.
    ///
    /// # Errors
    /// What the kernel says of the socket, or where it has no thread left.
    pub fn take(
        &self,
        socket: impl AsFd,
        pace: Pace,
        congestion: Option<&str>,
        start: Start,
    ) -> io::Result<Option<Paced>> {
        match pace {
            Pace::Off => unset_max_pacing_rate(&socket)?,
            Pace::Rate(rate) => set_max_pacing_rate(&socket, rate)?,
            Pace::Auto => {
                match start.known {
                    Some(known) => set_max_pacing_rate(&socket, first_pace(known))?,
                    None => unset_max_pacing_rate(&socket)?,
                }
                return self.drive(socket.as_fd().try_clone_to_owned()?, congestion, start).map(Some);
            }
        }
        hand_over(&socket, congestion.map(str::as_bytes));
        Ok(None)
    }

    fn drive(&self, socket: OwnedFd, congestion: Option<&str>, start: Start) -> io::Result<Paced> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let driven = Driven::new(socket, congestion, start);
        let orders = self.thread()?;
        // Fails only where the thread has panicked: then nothing is paced.
        let _ = orders.send(Order::Add(number, Box::new(driven)));
        Ok(Paced { number, orders })
    }

    /// Returns where the thread takes orders, which is started with the first.
    fn thread(&self) -> io::Result<Sender<Order>> {
        let mut running = lock(&self.orders);
        if let Some(orders) = &*running {
            return Ok(orders.clone());
        }
        let (orders, received) = crossbeam_channel::unbounded();
        std::thread::Builder::new().name("pacing".to_owned()).spawn(move || run(&received))?;
        Ok(running.insert(orders).clone())
    }
}

impl Paced {
    /// Stops looking: nothing is being sent, and what is seen would not be the path.
    pub fn rest(&self) {
        let _ = self.orders.send(Order::Rest(self.number));
    }

    /// Looks again.
    pub fn resume(&self) {
        let _ = self.orders.send(Order::Resume(self.number));
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Remove(self.number));
    }
}

fn run(orders: &Receiver<Order>) {
    let start = Instant::now();
    let mut sockets: BTreeMap<u64, Driven> = BTreeMap::new();
    loop {
        let due = sockets.values().filter(|driven| !driven.rests()).map(|driven| driven.due()).min();
        let order = match due {
            Some(due) => orders.recv_deadline(start + due),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(Order::Add(number, driven)) => drop(sockets.insert(number, *driven)),
            Ok(Order::Rest(number)) => with(&mut sockets, number, Driven::rest),
            Ok(Order::Resume(number)) => with(&mut sockets, number, Driven::resume),
            Ok(Order::Remove(number)) => drop(sockets.remove(&number)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let crowd = u32::try_from(sockets.len()).unwrap_or(u32::MAX).div_ceil(AT_ONCE);
                let now = start.elapsed();
                for driven in sockets.values_mut().filter(|driven| !driven.rests() && driven.due() <= now) {
                    driven.look(start.elapsed(), crowd);
                }
            }
        }
    }
}

fn with(sockets: &mut BTreeMap<u64, Driven>, number: u64, act: impl FnOnce(&mut Driven)) {
    if let Some(driven) = sockets.get_mut(&number) {
        act(driven);
    }
}
