//! The server's end of connections, plain or encrypted, and what a scripted server has done.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ServerConnection, StreamOwned};
use socket2::Socket;

use crate::faults::answer::Answer;
use crate::faults::fault::Fault;
use crate::support::http::{HttpRequest, reserved_port};

pub(crate) enum Peer {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Peer {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Closes after draining the input: closing with unread requests would reset the connection and
    /// lose sent data.
    pub(crate) fn close(mut self) {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = self.socket().shutdown(std::net::Shutdown::Write);
        let _ = self.socket().set_read_timeout(Some(Duration::from_millis(500)));
        while matches!(self.read(&mut [0; 4096]), Ok(1..)) {}
    }

    pub(crate) fn reset(self) {
        let _ = rustix::net::sockopt::set_socket_linger(self.socket(), Some(Duration::ZERO));
    }

    /// Sends a response, and counts its body's bytes; returns whether the connection remains
    /// usable.
    pub(crate) fn answer(
        &mut self,
        request: &HttpRequest,
        answer: &Answer,
        progress: &Progress,
    ) -> io::Result<bool> {
        self.send(answer.head.as_bytes())?;
        if request.head.starts_with("HEAD ") {
            return Ok(true);
        }
        let place = match answer.breaks {
            Some(Fault::Close(at) | Fault::Reset(at) | Fault::Stall(at, _) | Fault::Drip(at, _)) => at,
            _ => 1000,
        };
        let (begun, mut rest) = answer.body.split_at(answer.body.len() * place as usize / 1000);
        let mut send = |bytes: &[u8]| self.send_body(bytes, answer.chunked, progress);
        send(begun)?;
        match answer.breaks {
            Some(Fault::Close(_) | Fault::Reset(_)) => return Ok(false),
            Some(Fault::Stall(_, millis)) => thread::sleep(Duration::from_millis(millis)),
            Some(Fault::Drip(_, millis)) => {
                for _ in 0..millis / 50 {
                    let (drop, after) = rest.split_at(rest.len().min(200));
                    send(drop)?;
                    thread::sleep(Duration::from_millis(50));
                    rest = after;
                }
            }
            _ => {}
        }
        send(rest)?;
        if answer.chunked {
            self.send(b"0\r\n\r\n")?;
        }
        Ok(true)
    }

    fn send_body(&mut self, body: &[u8], chunked: bool, progress: &Progress) -> io::Result<()> {
        for piece in body.chunks(1 << 16) {
            if chunked {
                self.send(format!("{:x}\r\n", piece.len()).as_bytes())?;
            }
            self.send(piece)?;
            if chunked {
                self.send(b"\r\n")?;
            }
            progress.count(piece.len() as u64);
        }
        Ok(())
    }
}

/// Reads a request; `None` if the client has closed.
pub(crate) fn read_request(peer: &mut Peer) -> Option<HttpRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(peer.read(&mut byte), Ok(1)) {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    Some(HttpRequest { head, target })
}

pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    _reserved: Socket,
    closed: Arc<AtomicBool>,
}

impl Listener {
    /// Listens on loopback. `accept` gets each connection, and whether the port has been closed
    /// since.
    pub(crate) fn start(accept: impl Fn(TcpStream, &AtomicBool) + Send + 'static) -> Self {
        let (reserved, address) = reserved_port();
        let (listener, closed) = (TcpListener::bind(address).unwrap(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&closed);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                accept(stream, &ended);
            }
        });
        Self { address, _reserved: reserved, closed }
    }

    /// Closes the port, which stays reserved.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

pub(crate) struct Progress {
    served: AtomicU64,
    activity: AtomicU64,
    log: Mutex<String>,
    began: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let (served, activity) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { served, activity, log: Mutex::default(), began: Instant::now() }
    }

    pub(crate) fn begin(&self) {
        self.served.store(0, Ordering::SeqCst);
    }

    /// Counts bytes of content; none for another activity.
    pub(crate) fn count(&self, bytes: u64) {
        self.served.fetch_add(bytes, Ordering::SeqCst);
        self.activity.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    /// Counts all activity; a client without activity hangs.
    pub(crate) fn activity(&self) -> u64 {
        self.activity.load(Ordering::SeqCst)
    }

    pub(crate) fn note(&self, line: &str) {
        let at = self.began.elapsed().as_secs_f64();
        let _ = writeln!(self.log.lock(), "{at:8.3} {line}");
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().clone()
    }
}
