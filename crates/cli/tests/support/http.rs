//! Scripted HTTP servers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Socket, Type};

/// Returns a response with `body`; `head` is a status, and fields on further lines.
pub(crate) fn response(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Holds the threads of servers until a test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Opens the gate; returns whether it was closed.
    pub(crate) fn open(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn wait(&self) {
        while !self.is_open() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A server that handles each connection on its own thread.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asks: Arc<Mutex<Vec<HttpRequest>>>,
    play: Arc<Mutex<Handler>>,
}

type Handler = Arc<dyn Fn(&mut Peer) + Send + Sync>;

impl Server {
    /// Handles every connection by `play`.
    pub(crate) fn new(play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::first(usize::MAX, play)
    }

    /// Handles the first connection by `play`, and refuses later ones.
    pub(crate) fn once(play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::first(1, play)
    }

    /// Handles the first `most` connections by `play`, and refuses later ones.
    pub(crate) fn first(most: usize, play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::start(TcpListener::bind("127.0.0.1:0").unwrap(), most, Arc::new(play))
    }

    /// Handles the connections of `listener`, until the test's process ends.
    pub(crate) fn on(listener: TcpListener, play: impl Fn(&mut Peer) + Send + Sync + 'static) -> Self {
        Self::start(listener, usize::MAX, Arc::new(play))
    }

    fn start(listener: TcpListener, most: usize, play: Handler) -> Self {
        let address = listener.local_addr().unwrap();
        let (asks, play) = (Arc::<Mutex<Vec<_>>>::default(), Arc::new(Mutex::new(play)));
        let (log, plays) = (asks.clone(), play.clone());
        std::thread::spawn(move || {
            let mut listener = Some(listener);
            for number in 0..most {
                let stream = listener.as_ref().unwrap().accept().unwrap().0;
                // Before the last one is played: what a busy host has not closed yet, the kernel
                // would still connect.
                listener = listener.filter(|_| number + 1 < most);
                let mut peer = Peer { stream, number, asks: log.clone() };
                let play = plays.lock().clone();
                std::thread::spawn(move || play(&mut peer));
            }
        });
        Self { address, asks, play }
    }

    /// Serves `file` correctly on new connections from now on.
    pub(crate) fn mend(&self, file: File) {
        self.change(move |peer| peer.serve(&file));
    }

    /// Handles one connection on the calling thread.
    pub(crate) fn play(stream: TcpStream, play: impl Fn(&mut Peer)) {
        play(&mut Peer { stream, number: 0, asks: Arc::default() });
    }

    /// Answers the first request of every connection with `answer`, and closes.
    pub(crate) fn answering(answer: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Self::new(move |peer| peer.answer(&answer))
    }

    /// Answers each request with what `answer` returns.
    pub(crate) fn replying<A: AsRef<[u8]>>(
        answer: impl Fn(&HttpRequest) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |peer| {
            while let Some(request) = peer.read_request() {
                if !peer.send(answer(&request)) {
                    return;
                }
            }
        })
    }

    pub(crate) fn redirecting(to: &str) -> Self {
        Self::answering(response(&format!("302 Found\r\nLocation: {to}"), ""))
    }

    /// Handles every connection by `play`, with `file`.
    pub(crate) fn with(file: &File, play: impl Fn(&mut Peer, &File) + Send + Sync + 'static) -> Self {
        let file = file.clone();
        Self::new(move |peer| play(peer, &file))
    }

    /// Serves `file` correctly.
    pub(crate) fn of(file: File) -> Self {
        Self::new(move |peer| peer.serve(&file))
    }

    /// Closes the first `times` connections after `len` bytes of a body.
    pub(crate) fn closing(file: &File, len: usize, times: usize) -> Self {
        Self::with(file, move |peer, file| match peer.number < times {
            true => peer.break_off(file, len),
            false => peer.serve(file),
        })
    }

    /// Serves `file` at `rate` bytes per second on each connection.
    pub(crate) fn slow(rate: usize, file: &File) -> Self {
        Self::with(file, move |peer, file| peer.serve_at(rate, file))
    }

    /// Sends the first `len` bytes of each body, and the rest once the gate is open.
    pub(crate) fn held(file: &File, len: usize) -> (Self, Gate) {
        let (file, gate) = (file.clone(), Gate::default());
        let held = gate.clone();
        let server = Self::new(move |peer| peer.serve_after(len, &held, &file));
        (server, gate)
    }

    pub(crate) fn silent() -> Self {
        Self::new(Peer::stay_silent)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Handles new connections by `play` from now on.
    pub(crate) fn change(&self, play: impl Fn(&mut Peer) + Send + Sync + 'static) {
        *self.play.lock() = Arc::new(play);
    }

    pub(crate) fn requests(&self) -> Vec<HttpRequest> {
        self.asks.lock().clone()
    }
}

/// The head of a request.
#[derive(Debug, Clone)]
pub(crate) struct HttpRequest {
    pub(crate) head: String,
    pub(crate) target: String,
}

impl HttpRequest {
    /// Returns the first value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the requested range; its end is exclusive.
    pub(crate) fn range(&self, size: usize) -> Option<(usize, usize)> {
        let (start, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = last.parse::<usize>().map_or(size, |last| (last + 1).min(size));
        Some((start.parse().ok()?, end))
    }
}

#[derive(Clone)]
pub(crate) struct File {
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) etag: Option<&'static str>,
    /// Additional lines of each head, such as `"Last-Modified: ..\r\n"`.
    pub(crate) fields: String,
    pub(crate) ranges: bool,
}

impl File {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: Arc::new(bytes), etag: Some("\"v1\""), fields: String::new(), ranges: true }
    }

    /// Returns the head of the response to `request`, and its body.
    pub(crate) fn answer(&self, request: &HttpRequest) -> (String, &[u8]) {
        let size = self.bytes.len();
        let dated = |v: &str| self.fields.contains(&format!("Last-Modified: {v}\r\n"));
        let current = request.field("if-range").is_none_or(|v| Some(v) == self.etag || dated(v));
        let fields = &self.fields;
        let tag = self.etag.map_or_else(|| fields.clone(), |tag| format!("ETag: {tag}\r\n{fields}"));
        let (status, body) = match request.range(size).filter(|_| self.ranges && current) {
            Some((start, _)) if start >= size => {
                (format!("416 No\r\nContent-Range: bytes */{size}"), &[][..])
            }
            Some((start, end)) => {
                let last = end - 1;
                (format!("206 Part\r\nContent-Range: bytes {start}-{last}/{size}"), &self.bytes[start..end])
            }
            None => ("200 OK".to_owned(), &self.bytes[..]),
        };
        let head = format!("HTTP/1.1 {status}\r\n{tag}Content-Length: {}\r\n\r\n", body.len());
        // What followed such a head would be taken for the next answer on the connection.
        (head, if request.head.starts_with("HEAD") { &[] } else { body })
    }

    /// Returns the response to `request`.
    pub(crate) fn response(&self, request: &HttpRequest) -> Vec<u8> {
        let (head, body) = self.answer(request);
        [head.as_bytes(), body].concat()
    }
}

/// The server's end of a connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    /// Number of the connection, from 0.
    pub(crate) number: usize,
    asks: Arc<Mutex<Vec<HttpRequest>>>,
}

impl Peer {
    /// Reads a request's head; `None` if the client has closed.
    pub(crate) fn read_request(&mut self) -> Option<HttpRequest> {
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
        let request = HttpRequest { head, target };
        self.asks.lock().push(request.clone());
        Some(request)
    }

    /// Answers one request with `answer`, and closes.
    pub(crate) fn answer(&mut self, answer: impl AsRef<[u8]>) {
        if self.read_request().is_some() {
            self.send(answer);
            self.close();
        }
    }

    /// Answers no request until the client closes.
    pub(crate) fn stay_silent(&mut self) {
        while self.read_request().is_some() {}
    }

    /// Answers one request for `file` with the first `len` bytes of the body.
    pub(crate) fn begin(&mut self, file: &File, len: usize) {
        if let Some(request) = self.read_request() {
            let (head, body) = file.answer(&request);
            self.send(head);
            self.send(&body[..len.min(body.len())]);
        }
    }

    /// Answers one request for `file` with the first `len` bytes of the body, and closes.
    pub(crate) fn break_off(&mut self, file: &File, len: usize) {
        self.begin(file, len);
        self.close();
    }

    /// Sends bytes; returns whether the client accepts them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends bytes at about `rate` bytes per second, or at once if it is `usize::MAX`.
    pub(crate) fn trickle(&mut self, bytes: &[u8], rate: usize) -> bool {
        if rate == usize::MAX {
            return self.send(bytes);
        }
        bytes.chunks((rate / 50).max(1)).all(|piece| {
            std::thread::sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64));
            self.send(piece)
        })
    }

    pub(crate) fn serve(&mut self, file: &File) {
        self.serve_at(usize::MAX, file);
    }

    pub(crate) fn serve_at(&mut self, rate: usize, file: &File) {
        self.serve_by(rate, |request| file.answer(&request));
    }

    /// Sends the head and the body that `answer` returns for each request.
    pub(crate) fn serve_with<'a>(&mut self, answer: impl Fn(HttpRequest) -> (String, &'a [u8])) {
        self.serve_by(usize::MAX, answer);
    }

    /// Sends the head and the body that `answer` returns for each request, the body at `rate`.
    pub(crate) fn serve_by<'a>(&mut self, rate: usize, answer: impl Fn(HttpRequest) -> (String, &'a [u8])) {
        while let Some(request) = self.read_request() {
            let (head, body) = answer(request);
            if !self.send(head) || !self.trickle(body, rate) {
                return;
            }
        }
    }

    /// Answers requests for `file` until the client closes: the first `len` bytes of each body at
    /// once, the rest once `gate` is open.
    pub(crate) fn serve_after(&mut self, len: usize, gate: &Gate, file: &File) {
        while let Some(request) = self.read_request() {
            let (head, body) = file.answer(&request);
            let (first, rest) = body.split_at(len.min(body.len()));
            let is_sent = self.send(head) && self.send(first);
            if !rest.is_empty() {
                gate.wait();
            }
            if !is_sent || !self.send(rest) {
                return;
            }
        }
    }

    /// Closes after draining the input: closing with unread requests would reset the connection and
    /// lose sent data.
    pub(crate) fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(Duration::from_secs(1)));
        while matches!(self.stream.read(&mut [0; 4096]), Ok(1..)) {}
    }

    pub(crate) fn reset(&mut self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
        let _ = self.stream.shutdown(Shutdown::Read);
    }
}

/// Creates a listener with a full queue, of which the kernel drops every SYN; returns it, the
/// connections in the queue, and the address.
pub(crate) fn black_hole() -> (Socket, Vec<TcpStream>, SocketAddr) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok();
    let queue = std::iter::from_fn(connect).collect();
    (listener, queue, address)
}

/// Reserves a port, which is closed until a server listens at it: no other program gets it
/// meanwhile.
pub(crate) fn reserved_port() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}
