//! Reads TCP_INFO of a transfer's open connections, and keeps the counters of closed ones.

use std::net::TcpStream;

use longhaul_core::telemetry::{Counters, Sockets, StreamSample};
use longhaul_sys::tcp_info;
use parking_lot::Mutex;

use crate::telemetry;

/// The open sockets of a transfer, and the counters of its closed ones.
#[derive(Default)]
pub(crate) struct OpenSockets(Mutex<Connections>);

/// One lock covers both lists, so that a connection counts exactly once.
#[derive(Default)]
struct Connections {
    open: Vec<(usize, TcpStream)>,
    closed: Counters,
    /// The maximum number open at once.
    most: usize,
}

impl OpenSockets {
    /// Adds a stream's socket.
    pub(crate) fn add(&self, stream: usize, socket: &TcpStream) {
        // If no file descriptor is free, the stream runs without its socket being sampled.
        if let Ok(socket) = socket.try_clone() {
            let mut inner = self.0.lock();
            inner.open.push((stream, socket));
            inner.most = inner.most.max(inner.open.len());
        }
    }

    /// Removes a stream's socket, and keeps its counters.
    pub(crate) fn remove(&self, stream: usize) {
        let mut inner = self.0.lock();
        let Connections { open, closed, .. } = &mut *inner;
        for (_, socket) in open.extract_if(.., |(id, _)| *id == stream) {
            if let Ok(info) = tcp_info::read(socket) {
                *closed += Counters::of(&info);
            }
        }
    }

    /// Reads every open socket; returns a sample of each, and the sum including closed ones.
    pub(crate) fn read(&self) -> (Vec<StreamSample>, Sockets) {
        Self::read_all([self].into_iter())
    }

    /// Reads the open sockets of several groups; returns a sample of each, and the sum including
    /// closed ones.
    pub(crate) fn read_all<'a>(groups: impl Iterator<Item = &'a Self>) -> (Vec<StreamSample>, Sockets) {
        let (mut streams, mut closed) = (Vec::new(), Counters::default());
        for group in groups {
            let inner = group.0.lock();
            streams.extend(inner.open.iter().map(|(stream, socket)| telemetry::read(*stream, socket)));
            closed += inner.closed;
        }
        let all = Sockets::of(&streams, closed);
        (streams, all)
    }

    /// Returns the maximum number of connections open at once.
    pub(crate) fn most(&self) -> usize {
        self.0.lock().most
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    use longhaul_core::units::Bytes;

    use super::*;

    #[test]
    fn counters_never_fall_while_streams_reconnect() {
        const BYTES: usize = 1000;
        let (sockets, done) = (OpenSockets::default(), AtomicBool::new(false));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = |stream: usize| {
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            sockets.add(stream, &near);
            near.write_all(&[7; BYTES]).unwrap();
            far.read_exact(&mut [0; BYTES]).unwrap();
            // The reply carries the acknowledgement.
            far.write_all(b"!").unwrap();
            near.read_exact(&mut [0]).unwrap();
            sockets.remove(stream);
        };
        let acked = || sockets.read().1.counters.acked;
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                let mut before = Bytes::ZERO;
                while !done.load(Ordering::Relaxed) {
                    let now = acked();
                    assert!(now >= before, "{now} after {before}");
                    before = now;
                }
            });
            (0..200).for_each(|round| connect(round % 2));
            done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        // A SYN is acknowledged like a byte.
        assert_eq!((acked(), sockets.most()), (Bytes::new(200 * (BYTES as u64 + 1)), 1));
        assert!(sockets.read().0.is_empty());
    }
}
