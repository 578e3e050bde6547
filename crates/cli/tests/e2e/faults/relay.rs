//! A relay between client and server that flips bits, closes, resets, stalls and refuses.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::faults::fault::{RelayFault, RelayFaultKind};
use crate::faults::peer::Listener;

/// Connections that a server refuses while it is down in a step. Further ones wait for its restart,
/// which takes as long as the machine needs for it.
const MAX_REFUSALS: usize = 2;

pub(crate) struct Relay {
    listener: Listener,
    shared: Arc<RelayState>,
}

struct RelayState {
    to: SocketAddr,
    plan: Mutex<RelayPlan>,
    refusals: AtomicUsize,
    moved: AtomicU64, // Bytes relayed in this step, in both directions
}

#[derive(Default)]
struct RelayPlan {
    relayed: Vec<RelayFault>,
    connections: usize,
    sockets: Vec<Weak<TcpStream>>,
}

impl Relay {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let (refusals, moved) = (AtomicUsize::new(0), AtomicU64::new(0));
        let shared = Arc::new(RelayState { to, plan: Mutex::default(), refusals, moved });
        let relay = Arc::clone(&shared);
        let listener = Listener::start(move |client, closed| {
            if let Some(server) = relay.reach(closed) {
                relay.connect(client, server);
            }
        });
        Self { listener, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Begins a step: closes open connections, and restarts their numbers at 0.
    pub(crate) fn begin(&self, relayed: &[RelayFault]) {
        let mut plan = self.shared.plan.lock();
        for socket in plan.sockets.iter().filter_map(Weak::upgrade) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        *plan = RelayPlan { relayed: relayed.to_vec(), ..RelayPlan::default() };
        self.shared.moved.store(0, Ordering::SeqCst);
        self.shared.refusals.store(0, Ordering::SeqCst);
    }

    pub(crate) fn moved(&self) -> u64 {
        self.shared.moved.load(Ordering::SeqCst)
    }
}

impl RelayState {
    /// Connects to the server. Where it is down, the relay closes instead ([`MAX_REFUSALS`] times),
    /// and then waits for it.
    fn reach(&self, closed: &AtomicBool) -> Option<TcpStream> {
        loop {
            if let Ok(server) = TcpStream::connect(self.to) {
                return Some(server);
            }
            if self.refusals.fetch_add(1, Ordering::SeqCst) < MAX_REFUSALS || closed.load(Ordering::SeqCst) {
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let mut plan = self.plan.lock();
        let number = plan.connections;
        plan.connections += 1;
        let of = |to_client| {
            let mine = |r: &&RelayFault| r.connection == number && r.to_client == to_client;
            let mut relayed: Vec<_> = plan.relayed.iter().filter(mine).copied().collect();
            relayed.sort_by_key(|relayed| relayed.at);
            relayed
        };
        let (up, down) = (of(false), of(true));
        let (client, server) = (Arc::new(client), Arc::new(server));
        plan.sockets.extend([Arc::downgrade(&client), Arc::downgrade(&server)]);
        drop(plan);
        for (from, to, relayed) in [(&client, &server, up), (&server, &client, down)] {
            let (from, to, shared) = (Arc::clone(from), Arc::clone(to), Arc::clone(self));
            thread::spawn(move || shared.pump(&from, &to, &relayed));
        }
    }

    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, relayed: &[RelayFault]) {
        let mut relayed = relayed.iter();
        let mut next = relayed.next();
        let mut buffer = vec![0; 1 << 16];
        let mut at = 0;
        loop {
            let Ok(read) = from.read(&mut buffer) else {
                // The peer has reset the connection, so the relay resets too.
                return reset(to);
            };
            let piece = &mut buffer[..read];
            let end = at + read as u64;
            let mut sent = 0;
            while let Some(meddling) = next.filter(|next| next.at < end) {
                let place = (meddling.at.max(at) - at) as usize;
                next = relayed.next();
                if let RelayFaultKind::Flip(bit) = meddling.what {
                    piece[place] ^= 1 << bit;
                    continue;
                }
                let _ = to.write_all(&piece[sent..place.max(sent)]);
                sent = place.max(sent);
                match meddling.what {
                    RelayFaultKind::Stall(millis) => thread::sleep(Duration::from_millis(millis)),
                    RelayFaultKind::Close | RelayFaultKind::Refuse(_) => {
                        if let RelayFaultKind::Refuse(status) = meddling.what {
                            let mut client = if meddling.to_client { to } else { from };
                            let head = "Retry-After: 0\r\nContent-Length: 0\r\nConnection: close";
                            let _ = write!(client, "HTTP/1.1 {status} Refused\r\n{head}\r\n\r\n");
                        }
                        let _ = to.shutdown(Shutdown::Both);
                        let _ = from.shutdown(Shutdown::Both);
                        return;
                    }
                    _ => {
                        reset(from);
                        return reset(to);
                    }
                }
            }
            if read == 0 {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            if to.write_all(&piece[sent..]).is_err() {
                return reset(from);
            }
            at = end;
            self.moved.fetch_add(read as u64, Ordering::SeqCst);
        }
    }
}

fn reset(socket: &TcpStream) {
    // Unread input at close also causes a reset.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    let _ = socket.shutdown(Shutdown::Both);
}
