//! The server's end of a connection, plain or encrypted.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustls::{ServerConnection, StreamOwned};

use crate::answer::{Answer, Ask, Break};

/// The server's end of a connection.
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

    /// Closes so that what was sent arrives: a close with unread requests would reset it away.
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

    /// Sends an answer, and counts the bytes of its body; returns whether the connection may serve another.
    pub(crate) fn answer(&mut self, ask: &Ask, answer: &Answer, count: &dyn Fn(u64)) -> io::Result<bool> {
        self.send(answer.head.as_bytes())?;
        if ask.method == "HEAD" {
            return Ok(true);
        }
        let (until, goes_on) = match answer.breaks {
            Break::None => (answer.body.len(), true),
            Break::Close(at) | Break::Reset(at) => (at, false),
            Break::Stall(at, _) | Break::Drip(at, _) => (at, true),
        };
        self.send_body(&answer.body[..until], answer.chunked, count)?;
        if !goes_on {
            return Ok(false);
        }
        let mut rest = &answer.body[until..];
        match answer.breaks {
            Break::Stall(_, millis) => thread::sleep(Duration::from_millis(millis)),
            Break::Drip(_, millis) => {
                for _ in 0..millis / 50 {
                    let (drop, after) = rest.split_at(rest.len().min(200));
                    self.send_body(drop, answer.chunked, count)?;
                    thread::sleep(Duration::from_millis(50));
                    rest = after;
                }
            }
            _ => {}
        }
        self.send_body(rest, answer.chunked, count)?;
        if answer.chunked {
            self.send(b"0\r\n\r\n")?;
        }
        Ok(true)
    }

    fn send_body(&mut self, body: &[u8], chunked: bool, count: &dyn Fn(u64)) -> io::Result<()> {
        for piece in body.chunks(1 << 16) {
            if chunked {
                self.send(format!("{:x}\r\n", piece.len()).as_bytes())?;
            }
            self.send(piece)?;
            if chunked {
                self.send(b"\r\n")?;
            }
            count(piece.len() as u64);
        }
        Ok(())
    }
}

/// Reads a request's head; `None` where the client has closed. `unread` is what came beyond it.
pub(crate) fn read_head(peer: &mut Peer, unread: &mut Vec<u8>) -> Option<String> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..end + 4).collect();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        match peer.read(&mut buffer) {
            Ok(read @ 1..) => unread.extend(&buffer[..read]),
            _ => return None,
        }
    }
}
