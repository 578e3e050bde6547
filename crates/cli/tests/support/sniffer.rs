//! Searches the packets of a network of its own for a text.

use std::io::Read;
use std::panic::resume_unwind;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use longhaul_sys::netns::enter_new_network;
use socket2::{Domain, Protocol, Socket, Type};

use super::program::Get;
use super::server_process::needs_root;
use super::server_process::skip;

/// ETH_P_ALL: packets of every protocol (linux/if_ether.h), in network byte order for packet(7).
const ALL_PROTOCOLS: i32 = 0x0003_u16.to_be() as i32;

/// Runs `test` on a thread whose network, and that of the programs it starts, is a loopback device
/// without other packets.
pub(crate) fn in_own_network(test: impl FnOnce() + Send) {
    let Some(()) = needs_root("seeing packets") else { return };
    let inside = || {
        enter_new_network().unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        test();
    };
    thread::scope(|threads| threads.spawn(inside).join().unwrap_or_else(|panic| resume_unwind(panic)));
}

/// Runs a command that must succeed; returns the number of packets of the thread's network that
/// contain `text`.
#[track_caller]
pub(crate) fn packets_with(text: &str, run: &Get) -> usize {
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(ALL_PROTOCOLS))).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    // The packets of all of a run.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
    let has_ended = Arc::new(AtomicBool::new(false));
    let (ended, text) = (Arc::clone(&has_ended), text.to_owned());
    let sniffer = thread::spawn(move || {
        // Larger than any packet of the loopback device.
        let (mut packet, mut found) = (vec![0; 1 << 17], 0);
        loop {
            // Set before the last read: what is queued then is read.
            let is_last = ended.load(Ordering::SeqCst);
            match socket.read(&mut packet) {
                // The standard library's search is compiled with optimisation.
                Ok(n) => found += usize::from(String::from_utf8_lossy(&packet[..n]).contains(&text)),
                Err(_) if is_last => return found,
                Err(_) => {}
            }
        }
    });
    run.run().ok();
    has_ended.store(true, Ordering::SeqCst);
    sniffer.join().unwrap()
}
