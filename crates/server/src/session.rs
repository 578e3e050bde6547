//! One connection from its first byte to its last: requests in, replies out, in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::pace::{PACE_HEADER, PaceRequest};
use longhaul_core::proto::http::{MAX_HEAD, RequestBody, RequestHead};
use longhaul_core::units::{Bytes, Rate};
use tokio::task::spawn_blocking;
use tokio::time::{timeout, timeout_at};

use crate::accept::Shared;
use crate::census::{Replied, Seat};
use crate::metrics;
use crate::pace::PacedConnection;
use crate::patience::Patience;
use crate::reply::{Framing, Queued, Reply};
use crate::routes::{Action, route};
use crate::server::Phase;
use crate::transport::{ReplyError, Transport};
use crate::upload::{self, Received, Uploads};

/// One connection.
pub(crate) struct Session {
    pub(crate) transport: Transport,
    pub(crate) peer: SocketAddr,
    pub(crate) shared: Shared,
    /// Where it counts; given up after the transport, so that what the peer took last is counted too.
    pub(crate) seat: Option<Seat>,
    pub(crate) paced: PacedConnection,
    /// Bytes received and not yet read as a request; pipelined requests wait here.
    pub(crate) inbox: Vec<u8>,
}

/// What the peer did next.
enum Next {
    Request(RequestHead),
    /// It sent what is no request, or too slowly: answer with this status, then close.
    Refused(u16, String),
    /// It left, stayed silent, or the server is finishing or needs the room.
    Closed,
}

/// A reply, and what is to be known of its request.
struct Answer {
    method: String,
    target: String,
    reply: Reply,
    framing: Framing,
    /// Whether it is counted: whoever asks for metrics is no part of them.
    counts: bool,
    /// The pace that was asked for.
    pace: Option<PaceRequest>,
    /// How much of the body was taken, where it is an upload.
    received: Option<Bytes>,
}

impl Answer {
    /// Answers what is no request; the connection then ends.
    fn refusal(status: u16, why: &str) -> Self {
        Self {
            method: "-".to_owned(),
            target: "-".to_owned(),
            reply: Reply::text(status, why),
            framing: Framing { head_only: false, keep_alive: false },
            counts: true,
            pace: None,
            received: None,
        }
    }
}

/// What becomes of the connection after an exchange.
#[derive(PartialEq, Eq)]
enum After {
    /// Another request may follow.
    Another,
    /// The last reply was sent: see that it arrives, though so much may still come.
    Finish(Bytes),
    /// Nothing is under way.
    Close,
    /// The peer takes nothing more.
    Reset,
}

/// How much of what nobody asked for is read off a finished connection.
const SURPLUS: Bytes = Bytes::mib(1);
/// The same where an upload was refused: its sender may hear of that only when a window is on its way.
const REFUSED: Bytes = Bytes::gib(1);

/// How long the peer of a finished connection may go on without acknowledging what it was sent.
const LINGER: Duration = Duration::from_secs(2);

impl Session {
    /// Serves the connection to its end.
    pub(crate) async fn run(mut self) {
        let slowest = self.shared.limits.slowest;
        loop {
            match self.exchange().await {
                After::Another => {}
                After::Finish(most) => return self.transport.finish(LINGER, slowest, most).await,
                After::Close => return self.transport.finish(Duration::ZERO, slowest, SURPLUS).await,
                After::Reset => return self.transport.reset(),
            }
        }
    }

    /// Answers one request.
    async fn exchange(&mut self) -> After {
        let waiting = Arc::clone(&self.shared.waiting);
        let next = waiting.wait(self.next()).await.unwrap_or(Next::Closed);
        let started = Instant::now();
        let answer = match next {
            Next::Closed => return After::Close,
            Next::Refused(status, why) => Answer::refusal(status, &why),
            Next::Request(request) => self.answer(request).await,
        };
        self.send(answer, started).await
    }

    /// Finds the answer to a request; takes the body of an upload.
    async fn answer(&mut self, request: RequestHead) -> Answer {
        let (method, target) = (request.method().to_owned(), request.target().to_owned());
        let (head_only, keeps_alive) = (method == "HEAD", request.keeps_alive());
        let pace = request.header(PACE_HEADER).and_then(|pace| PaceRequest::parse(pace).ok());
        // Where a body is not read, nothing after it can be told from it.
        let (mut body_read, mut received) = (request.body() == RequestBody::None, None);
        let action = route(self.shared.served, self.shared.uploads.is_some(), &request);
        let counts = !matches!(action, Action::Metrics);
        let reply = match (action, self.shared.uploads.clone()) {
            (Action::Upload, Some(uploads)) => {
                let taken = self.take(&uploads, request).await;
                (received, body_read) = (Some(taken.bytes), taken.body_read);
                taken.reply
            }
            (action, _) => self.act(action, request).await,
        };
        let framing = Framing { head_only, keep_alive: keeps_alive && body_read };
        Answer { method, target, reply, framing, counts, pace, received }
    }

    /// Sends an answer, and says what becomes of the connection.
    async fn send(&mut self, answer: Answer, started: Instant) -> After {
        let Answer { method, target, mut reply, mut framing, counts, pace: asked, received } = answer;
        framing.keep_alive &= *self.shared.phase.borrow() == Phase::Running;
        let status = reply.status();
        let pace = self.shared.pace.of_reply(reply.length(), asked.map(|asked| asked.pace));
        if let Some(pace) = pace {
            reply.add(PACE_HEADER, &pace.header());
        }
        let Queued { mut outgoing, head, held } = reply.queue(framing, SystemTime::now());
        let seat = self.seat.as_ref().filter(|_| counts);
        if let Some(seat) = seat {
            seat.begins(self.transport.socket());
        }
        if let Some(pace) = pace.filter(|_| !framing.head_only) {
            let known = asked.and_then(|asked| asked.known);
            self.paced.begin(&self.shared.pace, self.transport.socket(), pace, self.peer.ip(), known);
        }
        let result = self.transport.send(&mut outgoing, &self.shared.limits).await;
        self.paced.end(&self.shared.pace, self.transport.socket());
        drop(held);
        let (sent, took) = (outgoing.sent().saturating_sub(head), started.elapsed());
        let replied = Replied { method, target, status, sent, received, took };
        self.log(&replied, result.as_ref().err());
        if let Some(seat) = seat {
            seat.ends(replied);
        }
        match result {
            Ok(()) if framing.keep_alive => After::Another,
            Ok(()) => After::Finish(if received.is_some() { REFUSED } else { SURPLUS }),
            Err(ReplyError::Stalled(_) | ReplyError::Slow(_)) => After::Reset,
            // The peer must not take what it has for the whole: the end comes before the promised length.
            Err(ReplyError::Send(_)) => After::Close,
        }
    }

    /// Takes a file, or part of one.
    async fn take(&mut self, uploads: &Arc<Uploads>, request: RequestHead) -> Received {
        let Self { transport, inbox, shared, seat, .. } = self;
        if let Some(seat) = seat {
            seat.begins(transport.socket());
        }
        upload::exchange(uploads, shared, transport, inbox, request).await
    }

    /// Does what a request asks for; on a blocking thread where that may take a while.
    async fn act(&self, action: Action, request: RequestHead) -> Reply {
        match action {
            Action::Reply(reply) => reply,
            Action::Metrics => metrics::reply(&self.shared.census).await,
            Action::Upload => Reply::text(405, "files are only read here"),
            Action::Read(path) => {
                let site = Arc::clone(&self.shared.site);
                let read = spawn_blocking(move || site.read(&path, &request, SystemTime::now()));
                read.await.unwrap_or_else(|_| Reply::text(500, "the request could not be answered"))
            }
        }
    }

    /// Reads the next request: waits idly for its first byte, then only so long for the rest.
    async fn next(&mut self) -> Next {
        let blank = self.inbox.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        self.inbox.drain(..blank);
        if self.inbox.is_empty() {
            // Releases what a large head has left: the connection may idle for long.
            self.inbox = Vec::new();
            if !self.first_bytes().await {
                return Next::Closed;
            }
        }
        let deadline = tokio::time::Instant::now() + self.shared.limits.head;
        let mut worth_a_try = true;
        loop {
            if worth_a_try {
                match RequestHead::parse(&self.inbox) {
                    Ok(Some((head, length))) => {
                        self.inbox.drain(..length);
                        return Next::Request(head);
                    }
                    Ok(None) => {}
                    Err(error) => return Next::Refused(error.status(), error.to_string()),
                }
            }
            let before = self.inbox.len();
            match timeout_at(deadline, self.transport.read(&mut self.inbox)).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return Next::Closed,
                Err(_) => return Next::Refused(408, "the request's head took too long".to_owned()),
            }
            // Only an end of line can complete a head; trying at each byte would cost the square of its length.
            worth_a_try = self.inbox[before..].contains(&b'\n') || self.inbox.len() >= MAX_HEAD.as_usize();
        }
    }

    /// Waits for the first bytes of a request; `false` where the connection should end instead.
    async fn first_bytes(&mut self) -> bool {
        let Self { transport, inbox, shared: Shared { phase, limits, .. }, .. } = self;
        let mut patience = Patience::new(transport.socket(), limits.idle, limits.slowest);
        let came = async {
            loop {
                match timeout(limits.idle, transport.read(inbox)).await {
                    Ok(read) => return matches!(read, Ok(1..)),
                    // The last reply may still be on its way to a slow peer: that is not idleness.
                    Err(_) if patience.renewed(transport.socket()) => {}
                    Err(_) => return false,
                }
            }
        };
        tokio::select! {
            biased;
            came = came => came,
            _ = phase.wait_for(|phase| *phase != Phase::Running) => false,
        }
    }

    fn log(&self, replied: &Replied, error: Option<&ReplyError>) {
        let Replied { method, target: path, status, sent, received, took } = replied;
        // What counts is the file, whichever way it went.
        let moved = received.unwrap_or(*sent);
        let peer = self.peer;
        let seconds = format_args!("{:.3}", took.as_secs_f64()).to_string();
        // Until the socket has taken the last byte; the peer has it up to a send buffer later.
        let goodput = Rate::over(moved, *took);
        let bytes = moved.get();
        match error {
            None => {
                tracing::info!(target: "longhaul::access", %peer, method, path, status, bytes, seconds, %goodput);
            }
            Some(error) => {
                tracing::warn!(target: "longhaul::access", %peer, method, path, status, bytes, seconds, %goodput, %error, "cut short");
            }
        }
    }
}
