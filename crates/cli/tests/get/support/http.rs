//! Scripted servers: they do what no real one does, or does only now and then.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A server that plays each connection on a thread of its own.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asks: Arc<Mutex<Vec<Ask>>>,
    play: Arc<Mutex<Play>>,
}

/// What a server does with a connection.
type Play = Arc<dyn Fn(&mut Peer) + Send + Sync>;

impl Server {
    /// Plays every connection with `play`.
    pub(crate) fn new(play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").unwrap(), play)
    }

    /// Plays the first connection and refuses every later one.
    pub(crate) fn once(play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::first(1, play)
    }

    /// Plays the first `most` connections and refuses every later one.
    pub(crate) fn first(most: usize, play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::first_of(TcpListener::bind("127.0.0.1:0").unwrap(), most, play)
    }

    /// Plays the connections of `listener`; ends with the test's process.
    pub(crate) fn on(listener: TcpListener, play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::first_of(listener, usize::MAX, play)
    }

    fn first_of(
        listener: TcpListener,
        most: usize,
        play: impl Fn(&mut Peer) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let asks = Arc::new(Mutex::new(Vec::new()));
        let play: Arc<Mutex<Play>> = Arc::new(Mutex::new(Arc::new(play)));
        let (log, plays) = (asks.clone(), play.clone());
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().take(most).enumerate() {
                let mut peer = Peer { stream: stream.unwrap(), number, asks: log.clone() };
                let play = plays.lock().unwrap().clone();
                std::thread::spawn(move || play(&mut peer));
            }
        });
        Self { address, asks, play }
    }

    /// Serves `file` as it should be on every connection from now on: the server is mended, its address stays.
    pub(crate) fn mend(&self, file: File) {
        self.change(move |peer| peer.serve(&file));
    }

    /// Plays one connection, here.
    pub(crate) fn play(stream: TcpStream, play: impl Fn(&mut Peer)) {
        play(&mut Peer { stream, number: 0, asks: Arc::default() });
    }

    /// Answers the first request of every connection with `answer`, and closes.
    pub(crate) fn answering(answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::new(move |peer| {
            if peer.ask().is_some() {
                peer.send(answer.as_ref());
                peer.close();
            }
        })
    }

    /// Serves `file` as it should be.
    pub(crate) fn of(file: File) -> Self {
        Self::new(move |peer| peer.serve(&file))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Plays every connection with `play` from now on.
    pub(crate) fn change(&self, play: impl Fn(&mut Peer) + Send + Sync + 'static) {
        *self.play.lock().unwrap() = Arc::new(play);
    }

    /// Returns the requests so far.
    pub(crate) fn asks(&self) -> Vec<Ask> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A request's head.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) head: String,
    /// What stands between GET and the version.
    pub(crate) target: String,
}

impl Ask {
    /// Returns the first value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the start and the (exclusive) end of the range asked for.
    pub(crate) fn range(&self, size: usize) -> Option<(usize, usize)> {
        let (start, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = last.parse::<usize>().map_or(size, |last| (last + 1).min(size));
        Some((start.parse().ok()?, end))
    }
}

/// A file to serve.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) etag: Option<&'static str>,
    /// Further lines of each head, as `"Last-Modified: ..\r\n"`.
    pub(crate) fields: String,
    pub(crate) ranges: bool,
}

impl File {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(bytes), etag: Some("\"v1\""), fields: String::new(), ranges: true }
    }

    /// Returns the head of the answer to `ask`, and which bytes follow.
    pub(crate) fn answer(&self, ask: &Ask) -> (String, &[u8]) {
        let size = self.bytes.len();
        let dated = |v: &str| self.fields.contains(&format!("Last-Modified: {v}\r\n"));
        let current = ask.field("if-range").is_none_or(|v| Some(v) == self.etag || dated(v));
        let fields = &self.fields;
        let tag = self.etag.map_or_else(|| fields.clone(), |tag| format!("ETag: {tag}\r\n{fields}"));
        match ask.range(size).filter(|_| self.ranges && current) {
            Some((start, _)) if start >= size => (
                format!("HTTP/1.1 416 No\r\nContent-Range: bytes */{size}\r\nContent-Length: 0\r\n{tag}\r\n"),
                &[],
            ),
            Some((start, end)) => (
                format!(
                    "HTTP/1.1 206 Part\r\n{tag}Content-Range: bytes {start}-{}/{size}\r\nContent-Length: {}\r\n\r\n",
                    end - 1,
                    end - start
                ),
                &self.bytes[start..end],
            ),
            None => (format!("HTTP/1.1 200 OK\r\n{tag}Content-Length: {size}\r\n\r\n"), &self.bytes),
        }
    }
}

/// The server's end of a connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    /// Which connection this is, from 0.
    pub(crate) number: usize,
    asks: Arc<Mutex<Vec<Ask>>>,
}

impl Peer {
    /// Reads a request's head; `None` where the client has closed.
    pub(crate) fn ask(&mut self) -> Option<Ask> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(self.stream.read(&mut byte), Ok(1)) {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let ask = Ask { head, target };
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).push(ask.clone());
        Some(ask)
    }

    /// Sends; returns whether the client still takes it.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends at about `rate` bytes a second.
    pub(crate) fn trickle(&mut self, bytes: &[u8], rate: usize) -> bool {
        bytes.chunks((rate / 50).max(1)).all(|piece| {
            std::thread::sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64));
            self.send(piece)
        })
    }

    /// Answers requests for `file` at this rate, in bytes a second, until the client closes.
    pub(crate) fn serve_at(&mut self, rate: usize, file: &File) {
        self.serve_by(rate, |ask| file.answer(&ask));
    }

    /// Sends what `answer` gives for each request: a head, and the bytes that follow it at this rate.
    pub(crate) fn serve_by<'a>(&mut self, rate: usize, answer: impl Fn(Ask) -> (String, &'a [u8])) {
        self.answer_all(answer, |peer, body| peer.trickle(body, rate));
    }

    /// Answers requests for `file` until the client closes.
    pub(crate) fn serve(&mut self, file: &File) {
        self.serve_with(|ask| file.answer(&ask));
    }

    /// Sends what `answer` gives for each request: a head, and the bytes that follow it.
    pub(crate) fn serve_with<'a>(&mut self, answer: impl Fn(Ask) -> (String, &'a [u8])) {
        self.answer_all(answer, |peer, body| peer.send(body));
    }

    fn answer_all<'a>(
        &mut self,
        answer: impl Fn(Ask) -> (String, &'a [u8]),
        send: impl Fn(&mut Self, &'a [u8]) -> bool,
    ) {
        while let Some(ask) = self.ask() {
            let (head, body) = answer(ask);
            if !self.send(head) || !send(self, body) {
                return;
            }
        }
    }

    /// Closes so that what was sent arrives: a close with unread requests would reset it away.
    pub(crate) fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(Duration::from_secs(1)));
        while matches!(self.stream.read(&mut [0; 4096]), Ok(1..)) {}
    }

    /// Closes with a reset.
    pub(crate) fn reset(&mut self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        let _ = self.stream.shutdown(Shutdown::Read);
    }
}
