//! Data connections of the scripted server: MODE E blocks, implemented independently of the code
//! under test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// Bytes per block: small, so that short files have many.
const BLOCK: u64 = 64 << 10;
/// The longest wait for a client: one that no longer reads or writes must not block the server
/// forever.
const PATIENCE: Duration = Duration::from_secs(60);

/// A requested transfer: a range of the file, and the base of its blocks' offsets.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) range: Range<u64>,
    pub(crate) base: u64,
}

impl Transfer {
    /// Sends the range over all connections, round-robin, and ends them; returns whether everything
    /// was sent.
    pub(crate) fn send(&self, file: &[u8], data: &mut [Data]) -> bool {
        let connections = data.len() as u64;
        self.send_blocks(file, data, |_| true) && end(data, connections)
    }

    /// Sends the blocks that `wanted` accepts by number, without the ends.
    pub(crate) fn send_blocks(
        &self,
        file: &[u8],
        data: &mut [Data],
        wanted: impl Fn(u64) -> bool + Sync,
    ) -> bool {
        let (count, wanted) = (data.len() as u64, &wanted);
        std::thread::scope(|scope| {
            let send = |(channel, at): (&mut Data, u64)| {
                let mut blocks = (0..self.blocks()).filter(|n| n % count == at && wanted(*n));
                blocks.all(|n| channel.block(file, self.block(n), self.base))
            };
            let threads: Vec<_> =
                data.iter_mut().zip(0..).map(|one| scope.spawn(move || send(one))).collect();
            // Joins all threads, even after a failed one.
            let sent: Vec<bool> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            sent.into_iter().all(|sent| sent)
        })
    }

    pub(crate) fn blocks(&self) -> u64 {
        (self.range.end - self.range.start).div_ceil(BLOCK)
    }

    /// Returns the range of the file in block `n`.
    pub(crate) fn block(&self, n: u64) -> Range<u64> {
        let start = self.range.start + n * BLOCK;
        start..(start + BLOCK).min(self.range.end)
    }
}

/// Ends the data of all connections; the first one announces `announced` ends.
pub(crate) fn end(data: &mut [Data], announced: u64) -> bool {
    let mut all = true;
    for (at, channel) in data.iter_mut().enumerate() {
        all &= if at == 0 { channel.header(72, 0, announced) } else { channel.header(8, 0, 0) };
    }
    all
}

pub(crate) struct Data(pub(crate) TcpStream);

impl Data {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends a header verbatim; returns whether the client accepts it.
    pub(crate) fn header(&mut self, descriptor: u8, count: u64, offset: u64) -> bool {
        let header = [&[descriptor][..], &count.to_be_bytes(), &offset.to_be_bytes()].concat();
        self.raw(&header)
    }

    /// Sends a range of the file as one block, with offsets from `base`.
    pub(crate) fn block(&mut self, file: &[u8], range: Range<u64>, base: u64) -> bool {
        let payload = &file[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
        self.header(0, payload.len() as u64, range.start - base) && self.raw(payload)
    }

    pub(crate) fn reset(self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.0, Some(Duration::ZERO));
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }
}

/// Accepts a connection; `None` after ten seconds.
pub(crate) fn accept(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Ok((stream, _)) = listener.accept() {
            return Some(as_blocking(stream));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

fn as_blocking(stream: TcpStream) -> TcpStream {
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Receives one MODE E transfer over all connections that the client opens; returns whether all of
/// them ended.
pub(crate) fn receive_blocks(listener: &TcpListener, base: usize, stored: &mut Vec<u8>) -> bool {
    let stored = Mutex::new(stored);
    let (sender, ends) = mpsc::channel();
    let (mut ended, mut announced) = (0, 0);
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        while announced == 0 || ended < announced {
            if let Ok((stream, _)) = listener.accept() {
                let (stored, sender) = (&stored, sender.clone());
                scope.spawn(move || {
                    let store = |offset, bytes: &[u8]| put(&mut stored.lock().unwrap(), base + offset, bytes);
                    let _ = sender.send(receive_channel(as_blocking(stream), store));
                });
            }
            match ends.recv_timeout(Duration::from_millis(1)) {
                Ok(Some(count)) => (ended, announced) = (ended + 1, announced.max(count)),
                Err(_) if Instant::now() < deadline => {}
                Ok(None) | Err(_) => return false,
            }
        }
        true
    })
}

/// Receives one connection up to its end of data; returns the announced number of connections (0
/// for none), or `None` if it was truncated.
fn receive_channel(mut stream: TcpStream, mut store: impl FnMut(usize, &[u8])) -> Option<u64> {
    let mut announced = 0;
    loop {
        let mut header = [0; 17];
        stream.read_exact(&mut header).ok()?;
        let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        let (descriptor, count, offset) = (header[0], number(1), number(9));
        if descriptor & 64 != 0 {
            announced = offset;
        } else {
            let mut payload = vec![0; usize::try_from(count).unwrap()];
            stream.read_exact(&mut payload).ok()?;
            store(usize::try_from(offset).unwrap(), &payload);
        }
        if descriptor & 8 != 0 {
            return Some(announced);
        }
    }
}

/// Writes `bytes` at `offset`; fills a gap before them with zeros.
pub(crate) fn put(stored: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if stored.len() < offset + bytes.len() {
        stored.resize(offset + bytes.len(), 0);
    }
    stored[offset..offset + bytes.len()].copy_from_slice(bytes);
}
