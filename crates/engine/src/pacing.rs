//! Paces sending sockets: reads them, asks [`Pacer`], and sets SO_MAX_PACING_RATE.
//!
//! Bytes on their way touch nothing here: one thread has descriptors of its own and looks at each socket some
//! hundred times a second, as long as something is being sent on it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use longhaul_core::pace::Pace;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::pace::{Observation, Pacer};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use longhaul_sys::{host, tcp_info};
use socket2::{Domain, SockRef, Socket, Type};

use crate::threads::lock;

/// The thread that paces, from the first socket whose pace is to be found until this and the last [`Paced`] are gone.
#[derive(Debug, Default)]
pub struct Pacing {
    orders: Mutex<Option<Sender<Order>>>,
    next: AtomicU64,
}

/// A socket that is being paced, until this is dropped.
#[derive(Debug)]
pub struct Paced {
    number: u64,
    orders: Sender<Order>,
}

#[derive(Debug)]
enum Order {
    Add(u64, Box<Driven>),
    Rest(u64),
    Resume(u64),
    Remove(u64),
}

/// Slow start is unpaced under this congestion control, and every kernel lets everybody use it.
///
/// BBR spreads its first windows, and the bottleneck's rate cannot be told from them.
const AT_FIRST: &[u8] = b"reno";
const BBR: &[u8] = b"bbr";
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
    /// # Errors
    /// What the kernel says of the socket, or where it has no thread left.
    pub fn take(&self, socket: impl AsFd, pace: Pace, congestion: Option<&str>) -> io::Result<Option<Paced>> {
        match pace {
            Pace::Off => unset_max_pacing_rate(&socket)?,
            Pace::Rate(rate) => set_max_pacing_rate(&socket, rate)?,
            Pace::Auto => {
                unset_max_pacing_rate(&socket)?;
                return self.drive(socket.as_fd().try_clone_to_owned()?, congestion).map(Some);
            }
        }
        hand_over(&socket, congestion.map(str::as_bytes));
        Ok(None)
    }

    fn drive(&self, socket: OwnedFd, congestion: Option<&str>) -> io::Result<Paced> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let driven = Driven::new(socket, congestion);
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
        let due = sockets.values().filter(|driven| !driven.rests).map(|driven| driven.due).min();
        let order = match due {
            Some(due) => orders.recv_deadline(start + due),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match order {
            Ok(Order::Add(number, driven)) => drop(sockets.insert(number, *driven)),
            Ok(Order::Rest(number)) => with(&mut sockets, number, |driven| driven.rests = true),
            Ok(Order::Resume(number)) => with(&mut sockets, number, Driven::resume),
            Ok(Order::Remove(number)) => drop(sockets.remove(&number)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let crowd = u32::try_from(sockets.len()).unwrap_or(u32::MAX).div_ceil(AT_ONCE);
                let now = start.elapsed();
                for driven in sockets.values_mut().filter(|driven| !driven.rests && driven.due <= now) {
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

/// A socket and its controller.
#[derive(Debug)]
struct Driven {
    socket: OwnedFd,
    pacer: Pacer,
    /// The pace in force.
    pace: Option<Rate>,
    due: Duration,
    rests: bool,
    /// The congestion control that it is to have once slow start is over.
    later: Option<Vec<u8>>,
    /// What was delivered in all; the kernel's count of segments wraps.
    delivered: Bytes,
    segments: Option<u32>,
}

impl Driven {
    fn new(socket: OwnedFd, congestion: Option<&str>) -> Self {
        let later =
            congestion.filter(|name| name.as_bytes() != AT_FIRST).map(|name| name.as_bytes().to_vec());
        Self {
            socket,
            pacer: Pacer::default(),
            pace: None,
            due: Duration::ZERO,
            rests: false,
            later,
            delivered: Bytes::ZERO,
            segments: None,
        }
    }

    fn resume(&mut self) {
        if std::mem::replace(&mut self.rests, false) {
            self.pacer.resume();
        }
    }

    /// Looks at the socket, and sets its pace where that has changed; `crowd` times as seldom as the controller asks.
    fn look(&mut self, now: Duration, crowd: u32) {
        self.due = now + self.pacer.interval() * crowd;
        let Some(seen) = tcp_info::read(&self.socket).ok().and_then(|tcp| self.observation(&tcp)) else {
            self.rests = true;
            return;
        };
        let pace = self.pacer.observe(&seen, now);
        tracing::trace!(target: "longhaul::pacing", ?now, ?pace, ?seen, pacer = ?self.pacer.phase());
        if let Some(rate) = pace.filter(|_| pace != self.pace) {
            // Where the kernel refuses, the connection goes on as it would have.
            let _ = set_max_pacing_rate(&self.socket, rate);
            self.pace = pace;
        }
        self.steer(&seen, now);
    }

    /// Takes from TCP_INFO what the controller wants to know; `None` before the first RTT.
    ///
    /// Not `tcpi_bytes_acked`: that stands still while a gap is being filled.
    fn observation(&mut self, tcp: &TcpInfo) -> Option<Observation> {
        let delivered = tcp.tcpi_delivered()? as u32;
        let more = delivered.wrapping_sub(self.segments.replace(delivered).unwrap_or(0));
        self.delivered += Bytes::new(u64::from(more) * tcp.tcpi_snd_mss()?);
        Some(Observation {
            goodput: self.delivered,
            window: tcp.cwnd()?,
            rtt: tcp.rtt()?,
            min_rtt: tcp.min_rtt()?,
            sent: Bytes::new(tcp.tcpi_bytes_sent()?),
            retransmits: Bytes::new(tcp.tcpi_bytes_retrans()?),
        })
    }

    /// Lets the congestion control follow the pace.
    fn steer(&mut self, seen: &Observation, now: Duration) {
        if self.pacer.has_settled() && self.later.is_some() && seen.window > self.full_window(seen) {
            hand_over(&self.socket, self.later.take().as_deref());
        }
        if self.pacer.is_held_back(seen, now) {
            grow_again(&self.socket);
        }
    }

    /// Returns the window that the pace needs.
    fn full_window(&self, seen: &Observation) -> Bytes {
        self.pace.map_or(Bytes::ZERO, |pace| pace.bdp(seen.min_rtt))
    }
}

/// Gives the socket its congestion control for good.
fn hand_over(socket: impl AsFd, congestion: Option<&[u8]>) {
    if let Some(name) = congestion {
        // Refused, it stays with the one that it has.
        let _ = SockRef::from(&socket).set_tcp_congestion(name);
    }
}

/// Lets the congestion control grow as at its start: the pace, not the window, is what keeps the path from overflowing.
///
/// After a loss CUBIC takes tens of seconds to grow back over such a path, and BBR sends faster only every eighth round trip,
/// though the controller has found the path free. The kernel forgets the threshold of slow start where a connection goes
/// over to BBR, and nowhere else.
fn grow_again(socket: impl AsFd) {
    let socket = SockRef::from(&socket);
    let Ok(name) = socket.tcp_congestion() else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let by_way_of = if name == BBR { AT_FIRST } else { BBR };
    if socket.set_tcp_congestion(by_way_of).is_ok() {
        let _ = socket.set_tcp_congestion(name);
    }
}
