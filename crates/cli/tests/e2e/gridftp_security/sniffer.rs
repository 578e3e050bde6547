//! Searches all packets on this host's interfaces for a text.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::support::skip;

/// ETH_P_ALL: packets of every protocol (linux/if_ether.h), in network byte order for packet(7).
const ALL_PROTOCOLS: i32 = 0x0003_u16.to_be() as i32;

/// Counts packets that contain a text, until it is stopped.
pub(crate) struct Sniffer {
    stop: Arc<AtomicBool>,
    found: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Sniffer {
    /// Starts searching for `text`; `None` without root.
    pub(crate) fn start(text: &str) -> Option<Self> {
        let Ok(mut socket) = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ALL_PROTOCOLS)))
        else {
            skip("seeing packets needs root");
            return None;
        };
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        // Traffic of other tests must not overflow the buffer.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20);
        let (stop, found) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let text = text.to_owned();
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&found));
        let thread = std::thread::spawn(move || {
            // Larger than any packet of the loopback device.
            let mut packet = vec![0; 1 << 17];
            loop {
                match socket.read(&mut packet) {
                    // The standard library's search is compiled with optimisation: a slow one would miss packets.
                    Ok(n) if String::from_utf8_lossy(&packet[..n]).contains(&text) => {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                    Ok(_) => {}
                    // The queued packets have been read.
                    Err(_) if stopped.load(Ordering::SeqCst) => return,
                    Err(_) => {}
                }
            }
        });
        Some(Self { stop, found, thread: Some(thread) })
    }

    /// Stops, and returns the number of packets that contained the text.
    pub(crate) fn found(mut self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
        self.found.load(Ordering::SeqCst)
    }
}
