//! One HTTP/1.1 connection: reads requests and sends their replies in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::pace::{PACE_HEADER, PaceRequest};
use longhaul_core::proto::http::{MAX_HEAD, RequestBody, RequestHead, TargetPath};
use longhaul_core::units::{Bytes, Rate};
use tokio::time::{timeout, timeout_at};

use crate::accept::make_room;
use crate::access::RequestOrigin;
use crate::connection_limit::ConnectionSlot;
use crate::connection_stats::{ConnectionEntry, FinishedReply};
use crate::context::ServerContext;
use crate::continuation::{self, Continuation, NEXT_REQUEST};
use crate::metrics;
use crate::piece_digests::asks_for_digests;
use crate::reply::{QueuedReply, Reply, ReplyFraming};
use crate::reply_pacing::PacedConnection;
use crate::routes::{Action, route};
use crate::server_phase::ServerPhase;
use crate::stall_detector::StallDetector;
use crate::targets::has_valid_host;
use crate::transport::{ReplyError, ServerTransport};
use crate::upload;

/// A connection's state between requests.
pub(crate) struct HttpConnection {
    pub(crate) transport: ServerTransport,
    pub(crate) peer: SocketAddr,
    pub(crate) context: ServerContext,
    /// Dropped after `transport`, so that its final counters include the last acknowledgements.
    pub(crate) entry: Option<ConnectionEntry>,
    pub(crate) paced: PacedConnection,
    /// Received bytes that are not parsed yet, pipelined requests included.
    pub(crate) inbox: Vec<u8>,
    pub(crate) slot: Arc<ConnectionSlot>,
    /// The reply being sent, for the log.
    pub(crate) sending: Option<SendingReply>,
    /// What the next request may continue once the server finishes.
    pub(crate) continuation: Continuation,
    /// Whether the server was finishing before the request arrived.
    pub(crate) is_late: bool,
    /// Whether a request was answered.
    pub(crate) is_answered: bool,
}

/// A reply that may be cut by an eviction.
pub(crate) struct SendingReply {
    method: String,
    target: String,
    token: Option<Arc<str>>,
    status: u16,
    started: Instant,
    /// The length of the head.
    head: Bytes,
}

/// The outcome of waiting for a request.
enum NextRequest {
    Request(RequestHead),
    /// An invalid or incomplete request: reply with this status, then close.
    Refused(u16, String),
    /// The peer closed or idled too long, the server finishes, or the connection is evicted.
    Closed,
}

/// A reply, and what sending it needs of its request.
struct PreparedReply {
    method: String,
    target: String,
    /// The name of the token that allowed the request.
    token: Option<Arc<str>>,
    reply: Reply,
    framing: ReplyFraming,
    /// Whether the statistics count it; requests for /metrics are excluded.
    counts: bool,
    /// Whether the server's pacing applies.
    paced: bool,
    /// The requested pace.
    pace: Option<PaceRequest>,
    /// Bytes of the body that were read; `None` except for uploads.
    received: Option<Bytes>,
}

impl PreparedReply {
    /// Refuses an invalid request; the connection is closed after the reply.
    fn refusal(status: u16, why: &str) -> Self {
        Self {
            method: "-".to_owned(),
            target: "-".to_owned(),
            token: None,
            reply: Reply::text(status, why),
            framing: ReplyFraming { head_only: false, keep_alive: false },
            counts: true,
            paced: true,
            pace: None,
            received: None,
        }
    }
}

/// What to do with the connection after a reply.
#[derive(PartialEq, Eq)]
enum AfterReply {
    /// Keep alive: read the next request.
    KeepAlive,
    /// Close once the reply is acknowledged; discard at most this much of what the peer still sends.
    Drain(Bytes),
    /// Close at once: nothing is in flight.
    Close,
    /// Answer 503: another connection needs the slot, and a request has arrived, or the first one is on its way.
    MakeRoom,
    /// Reset: the peer has stalled, or another client needs the slot.
    Reset,
}

/// The most bytes that are discarded of a connection being closed.
pub(crate) const DRAIN_LIMIT: Bytes = Bytes::mib(1);
/// The most bytes that are discarded after a refused upload: its client may have a whole window in flight
/// before it reads the refusal.
const UPLOAD_DRAIN_LIMIT: Bytes = Bytes::gib(1);

/// How long a connection being closed waits for further acknowledgements.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl HttpConnection {
    /// Serves requests until the connection closes.
    pub(crate) async fn run(mut self) {
        let slowest = self.context.limits.slowest;
        let after = loop {
            match self.exchange().await {
                AfterReply::KeepAlive => {}
                after => break after,
            }
        };
        let Self { transport, slot, context, .. } = &mut self;
        if after == AfterReply::MakeRoom {
            return make_room(transport, context).await;
        }
        // What is left of the last reply is no reason to keep the connection.
        slot.idle();
        let close = async {
            match after {
                AfterReply::Drain(most) => transport.close(CLOSE_TIMEOUT, slowest, most).await,
                AfterReply::Close => transport.close(Duration::ZERO, slowest, DRAIN_LIMIT).await,
                AfterReply::KeepAlive | AfterReply::MakeRoom | AfterReply::Reset => transport.reset(),
            }
        };
        tokio::select! {
            () = close => {}
            () = slot.evicted() => {}
        }
    }

    /// Answers one request; ends where another connection gets the slot.
    async fn exchange(&mut self) -> AfterReply {
        self.slot.idle();
        let evicted = self.slot.evicted();
        let next = tokio::select! {
            biased;
            next = self.next() => next,
            () = evicted => return if self.awaits_answer().await { AfterReply::MakeRoom } else { AfterReply::Close },
        };
        if matches!(next, NextRequest::Closed) {
            return AfterReply::Close;
        }
        if !self.slot.replying() {
            // The slot went to another connection while a request had already arrived.
            return AfterReply::MakeRoom;
        }
        let evicted = self.slot.evicted();
        tokio::select! {
            biased;
            after = self.reply(next) => after,
            () = evicted => {
                self.log_evicted();
                AfterReply::Reset
            }
        }
    }

    /// Returns whether the peer of an idle connection waits for an answer: it has sent a request, or has just connected for one.
    async fn awaits_answer(&mut self) -> bool {
        let Self { transport, inbox, is_answered, .. } = self;
        !*is_answered
            || !inbox.is_empty()
            || matches!(timeout(Duration::ZERO, transport.read(inbox)).await, Ok(Ok(1..)))
    }

    async fn reply(&mut self, next: NextRequest) -> AfterReply {
        let started = Instant::now();
        let answer = match next {
            NextRequest::Closed => return AfterReply::Close,
            NextRequest::Refused(status, why) => PreparedReply::refusal(status, &why),
            NextRequest::Request(request) => match self.answer(request).await {
                Some(answer) => answer,
                None => return AfterReply::Close,
            },
        };
        self.send(answer, started).await
    }

    /// Makes the reply to a request; receives its body. `None` where the client has closed the connection: it has measured enough, or no
    /// longer waits for digests.
    async fn answer(&mut self, request: RequestHead) -> Option<PreparedReply> {
        let admitted = !self.is_late || self.continuation.admits(&request);
        self.continuation = Continuation::after(&request);
        if !admitted {
            self.continuation = Continuation::Nothing;
            let reply = continuation::refusal();
            return Some(PreparedReply { reply, ..PreparedReply::refusal(503, "") });
        }
        let (method, target) = (request.method().to_owned(), request.target().to_owned());
        let (head_only, keeps_alive) = (method == "HEAD", request.keeps_alive());
        let pace = request.header(PACE_HEADER).and_then(|pace| PaceRequest::parse(pace).ok());
        // After an unread body the next request cannot be found.
        let mut body_read = request.body() == RequestBody::None;
        let sends_file = matches!(request.method(), "PUT" | "PATCH");
        let mut received = (!body_read && sends_file).then_some(Bytes::ZERO);
        let mut token = None;
        let path = TargetPath::parse(request.target());
        let access = &self.context.access;
        let origin = RequestOrigin { client: self.peer.ip().into(), is_exposed: self.is_exposed() };
        let now = (SystemTime::now(), Instant::now());
        let allowed = match has_valid_host(&request) {
            true => access.authorise(&request, &path, origin, now),
            false => Err(Reply::text(400, "the Host is not a host")),
        };
        let action = match allowed {
            Ok(grant) => {
                token.clone_from(&grant.holder);
                route(self.context.offers(), request, path, grant)
            }
            Err(refused) => Action::Reply(refused),
        };
        let (counts, measures) = (!matches!(action, Action::Metrics), matches!(action, Action::Measure(_)));
        let reply = match (action, self.context.uploads.clone()) {
            (Action::Upload(command), Some(uploads)) => {
                let Self { transport, inbox, entry, slot, is_late, .. } = self;
                if let Some(entry) = entry {
                    entry.reply_begins(transport.socket());
                }
                let command = if *is_late { command.only_continuing() } else { *command };
                let taken = upload::handle(&uploads, (transport, slot), inbox, command).await;
                (received, body_read) = (sends_file.then_some(taken.bytes), taken.body_read);
                taken.reply
            }
            (Action::Measure(request), _) if method == "PUT" => {
                let (reply, bytes) = self.receive_measurement(&request).await?;
                received = Some(bytes);
                reply
            }
            (action, _) => self.act(action).await?,
        };
        // A measurement may have changed the socket's options.
        let keep_alive = keeps_alive && body_read && !measures;
        let framing = ReplyFraming { head_only, keep_alive };
        let paced = !measures;
        Some(PreparedReply { method, target, token, reply, framing, counts, paced, pace, received })
    }

    /// Sends a reply; returns what to do with the connection.
    async fn send(&mut self, answer: PreparedReply, started: Instant) -> AfterReply {
        let PreparedReply {
            method,
            target,
            token,
            mut reply,
            mut framing,
            counts,
            paced,
            pace: asked,
            received,
        } = answer;
        let status = reply.status();
        if status >= 400 {
            self.continuation = Continuation::Nothing;
        }
        let is_running = *self.context.phase.borrow() == ServerPhase::Running;
        framing.keep_alive &= is_running || self.continuation != Continuation::Nothing;
        let is_upload = received.is_some() && paced;
        let (client, socket) = (self.peer.ip(), self.transport.socket());
        let pace = paced.then(|| self.context.pace.of_reply(reply.length(), asked, client, socket)).flatten();
        if let Some(pace) = pace {
            reply.add(PACE_HEADER, &pace.header());
        }
        let mut queued = reply.queue(framing, SystemTime::now());
        let head = queued.head;
        self.sending = Some(SendingReply {
            method: method.clone(),
            target: target.clone(),
            token: token.clone(),
            status,
            started,
            head,
        });
        let entry = self.entry.as_ref().filter(|_| counts);
        if let Some(entry) = entry {
            entry.reply_begins(self.transport.socket());
        }
        if let Some(pace) = pace.filter(|_| !framing.head_only) {
            let known = asked.and_then(|asked| asked.known);
            self.paced.begin(&self.context.pace, self.transport.socket(), pace, self.peer.ip(), known);
        }
        let QueuedReply { outgoing, disk, .. } = &mut queued;
        let result =
            self.transport.send(outgoing, &self.context.limits, (self.slot.sent(), disk.as_ref())).await;
        self.paced.end(&self.context.pace, self.transport.socket());
        (self.sending, self.is_answered) = (None, true);
        let (sent, took) = (queued.outgoing.sent().saturating_sub(head), started.elapsed());
        drop(queued);
        let replied = FinishedReply { method, target, status, sent, received, took };
        self.log(&replied, token.as_deref(), result.as_ref().err());
        if let Some(entry) = entry {
            entry.reply_ends(replied);
        }
        match result {
            Ok(()) if framing.keep_alive => AfterReply::KeepAlive,
            Ok(()) => AfterReply::Drain(if is_upload { UPLOAD_DRAIN_LIMIT } else { DRAIN_LIMIT }),
            Err(ReplyError::Stalled(_) | ReplyError::Slow(_) | ReplyError::Evicted) => AfterReply::Reset,
            // Closing before the announced length tells the peer that the body is incomplete.
            Err(ReplyError::Send(_) | ReplyError::Disk(_)) => AfterReply::Close,
        }
    }

    /// Returns whether others than the peer may have read the request: it came unencrypted, from another host.
    fn is_exposed(&self) -> bool {
        matches!(self.transport, ServerTransport::Plain(_)) && !self.peer.ip().to_canonical().is_loopback()
    }

    /// Receives a measurement's bytes; `None` where the client has closed the connection.
    async fn receive_measurement(&mut self, request: &RequestHead) -> Option<(Reply, Bytes)> {
        let Self { transport, inbox, slot, context, peer, .. } = self;
        slot.receiving();
        let ahead = std::mem::take(inbox).len();
        context.measurement.as_ref()?.receive(request, transport, (peer.ip(), ahead)).await
    }

    /// Makes the reply to a request without a body; opens files on a blocking thread. `None` where the client does not wait for it.
    async fn act(&mut self, action: Action) -> Option<Reply> {
        Some(match action {
            Action::Reply(reply) => reply,
            Action::Metrics => metrics::reply(&self.context.stats).await,
            Action::Measure(request) => self.context.measurement.as_ref().map_or_else(
                || Reply::text(404, "no measurements are allowed here"),
                |measurement| measurement.reply(&request, self.transport.socket(), self.peer),
            ),
            Action::Upload(_) => Reply::text(405, "files are only read here"),
            Action::Read(read) => {
                let files = Arc::clone(&self.context.static_files);
                let is_long = asks_for_digests(&read.path);
                let answer = files.answer(read);
                if !is_long {
                    return Some(answer.await);
                }
                tokio::select! {
                    reply = answer => reply,
                    () = self.transport.closed(&mut self.inbox) => return None,
                }
            }
        })
    }

    /// Reads the next request: the first byte within the idle timeout, the rest within the head timeout.
    async fn next(&mut self) -> NextRequest {
        self.is_late = *self.context.phase.borrow() != ServerPhase::Running;
        let blank = self.inbox.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        self.inbox.drain(..blank);
        if self.inbox.is_empty() {
            // Frees the buffer of a large head: the connection may idle for long.
            self.inbox = Vec::new();
            if !self.first_bytes().await {
                return NextRequest::Closed;
            }
        }
        let deadline = tokio::time::Instant::now() + self.context.limits.head;
        let mut may_be_complete = true;
        loop {
            if may_be_complete {
                match RequestHead::parse(&self.inbox) {
                    Ok(Some((head, length))) => {
                        self.inbox.drain(..length);
                        return NextRequest::Request(head);
                    }
                    Ok(None) => {}
                    Err(error) => return NextRequest::Refused(error.status(), error.to_string()),
                }
            }
            let before = self.inbox.len();
            match timeout_at(deadline, self.transport.read(&mut self.inbox)).await {
                Ok(Ok(1..)) => {}
                Ok(_) => return NextRequest::Closed,
                Err(_) => return NextRequest::Refused(408, "the request's head took too long".to_owned()),
            }
            // Only a line's end completes a head; parsing after each byte would cost the square of its length.
            may_be_complete =
                self.inbox[before..].contains(&b'\n') || self.inbox.len() >= MAX_HEAD.as_usize();
        }
    }

    /// Waits for the first bytes of a request; `false` where the connection must be closed instead.
    async fn first_bytes(&mut self) -> bool {
        let Self { transport, inbox, context, continuation, is_late, .. } = self;
        let ServerContext { phase, limits, .. } = context;
        let mut stall = StallDetector::new(transport.socket(), limits.idle, limits.slowest);
        let received = async {
            loop {
                match timeout(limits.idle, transport.read(inbox)).await {
                    Ok(read) => return matches!(read, Ok(1..)),
                    // A slow peer may still be receiving the last reply: the connection is not idle.
                    Err(_) if stall.has_progressed(transport.socket()) => {}
                    Err(_) => return false,
                }
            }
        };
        tokio::pin!(received);
        tokio::select! {
            biased;
            received = &mut received => return received,
            _ = phase.wait_for(|phase| *phase != ServerPhase::Running) => {}
        }
        *is_late = true;
        *continuation != Continuation::Nothing && timeout(NEXT_REQUEST, received).await == Ok(true)
    }

    /// Logs the reply that ends because another connection gets the slot.
    fn log_evicted(&mut self) {
        let Some(sending) = self.sending.take() else { return };
        let SendingReply { method, target, token, status, started, head } = sending;
        let sent = Bytes::new(self.slot.sent().load(Ordering::Relaxed)).saturating_sub(head);
        let replied = FinishedReply { method, target, status, sent, received: None, took: started.elapsed() };
        self.log(&replied, token.as_deref(), Some(&ReplyError::Evicted));
        if let Some(entry) = &self.entry {
            entry.reply_ends(replied);
        }
    }

    fn log(&self, replied: &FinishedReply, token: Option<&str>, error: Option<&ReplyError>) {
        let FinishedReply { method, target: path, status, sent, received, took } = replied;
        // The bytes of the file, received or sent.
        let moved = received.unwrap_or(*sent);
        let peer = self.peer;
        let seconds = format_args!("{:.3}", took.as_secs_f64()).to_string();
        // The time ends when the socket has accepted the last byte; the peer receives it up to a send buffer later.
        let goodput = Rate::over(moved, *took);
        let bytes = moved.get();
        match error {
            None => {
                tracing::info!(target: "longhaul::access", %peer, token, method, path, status, bytes, seconds, %goodput);
            }
            Some(error) => {
                tracing::warn!(target: "longhaul::access", %peer, token, method, path, status, bytes, seconds, %goodput, %error, "cut short");
            }
        }
    }
}
