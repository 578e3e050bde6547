//! One HTTP/1.1 connection: reads requests and sends their replies in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::pace::{PACE_HEADER, PaceRequest};
use longhaul_core::proto::http::{RequestBody, RequestHead, TargetPath};
use longhaul_core::units::Bytes;

use crate::access::RequestOrigin;
use crate::admission::connection_slots::ConnectionSlot;
use crate::connection::accept::make_room;
use crate::connection::late_requests::{self, LateRequests};
use crate::connection::next_request::NextRequest;
use crate::connection::routes::{Action, route};
use crate::connection::targets::has_valid_host;
use crate::connection::transport::{ReplyError, ServerTransport};
use crate::context::ServerContext;
use crate::pacing::reply_pacing::PacedConnection;
use crate::reply::piece_digests::asks_for_digests;
use crate::reply::{QueuedReply, Reply, ReplyFraming};
use crate::shutdown::ServerPhase;
use crate::stats::access_log::{LoggedReply, LoggedRequest};
use crate::stats::connection_stats::ConnectionEntry;
use crate::stats::metrics;
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
    pub(crate) sending: Option<LoggedReply>,
    pub(crate) late: LateRequests,
    /// Whether a request was answered.
    pub(crate) is_answered: bool,
}

/// A reply, and what sending it needs of its request.
struct PreparedReply {
    request: LoggedRequest,
    reply: Reply,
    framing: ReplyFraming,
    /// Whether the server's pacing applies.
    paced: bool,
    /// The requested pace.
    pace: Option<PaceRequest>,
}

impl PreparedReply {
    /// Prepares the last reply of a connection, to a request that is not looked into.
    fn last(reply: Reply) -> Self {
        let framing = ReplyFraming { head_only: false, keep_alive: false };
        Self { request: LoggedRequest::invalid(), reply, framing, paced: true, pace: None }
    }
}

/// What to do with the connection after a reply.
#[derive(PartialEq, Eq)]
enum AfterReply {
    /// Keep alive: read the next request.
    KeepAlive,
    /// Close once the reply is acknowledged; discard at most this much of what the peer still
    /// sends.
    Drain(Bytes),
    /// Close at once: nothing is in flight.
    Close,
    /// Answer 503: another connection needs the slot, and a request has arrived, or the first one
    /// is on its way.
    MakeRoom,
    /// Reset: the peer has stalled, or another client needs the slot.
    Reset,
}

/// The most bytes that are discarded of a connection being closed.
pub(crate) const DRAIN_LIMIT: Bytes = Bytes::mib(1);
/// The most bytes that are discarded after a refused upload: its client may have a whole window in
/// flight before it reads the refusal.
const UPLOAD_DRAIN_LIMIT: Bytes = Bytes::gib(1);

/// How long a connection being closed waits for further acknowledgements.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

impl HttpConnection {
    /// Serves requests until the connection closes.
    pub(crate) async fn run(mut self) {
        let slowest = self.context.timeouts.slowest;
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
                let sent = Bytes::new(self.slot.sent().load(Ordering::Relaxed));
                self.reply_ends(sent, Some(&ReplyError::Evicted));
                AfterReply::Reset
            }
        }
    }

    async fn reply(&mut self, next: NextRequest) -> AfterReply {
        let answer = match next {
            NextRequest::Closed => return AfterReply::Close,
            NextRequest::Refused(status, why) => PreparedReply::last(Reply::text(status, &why)),
            NextRequest::Request(request) => match self.answer(request).await {
                Some(answer) => answer,
                None => return AfterReply::Close,
            },
        };
        self.send(answer).await
    }

    /// Makes the reply to a request; receives its body. `None` where the client has closed the
    /// connection: it has measured enough, or no longer waits for digests.
    async fn answer(&mut self, request: RequestHead) -> Option<PreparedReply> {
        if !self.late.admit(&request) {
            return Some(PreparedReply::last(late_requests::refusal()));
        }
        let mut logged = LoggedRequest::of(&request);
        let (head_only, keeps_alive) = (request.method() == "HEAD", request.keeps_alive());
        let pace = request.header(PACE_HEADER).and_then(|pace| PaceRequest::parse(pace).ok());
        // After an unread body the next request cannot be found.
        let mut body_read = request.body() == RequestBody::None;
        let sends_file = matches!(request.method(), "PUT" | "PATCH");
        logged.received = (!body_read && sends_file).then_some(Bytes::ZERO);
        let path = TargetPath::parse(request.target());
        let services = &self.context.services;
        let origin = RequestOrigin { client: self.peer.ip().into(), is_exposed: self.is_exposed() };
        let now = (SystemTime::now(), Instant::now());
        let allowed = match has_valid_host(&request) {
            true => services.access.authorise(&request, &path, origin, now),
            false => Err(Reply::text(400, "the Host is not a host")),
        };
        let action = match allowed {
            Ok(grant) => {
                logged.token.clone_from(&grant.holder);
                route(services, request, path, grant)
            }
            Err(refused) => Action::Reply(refused),
        };
        let measures = matches!(action, Action::Measure(_));
        let reply = match (action, services.uploads.clone()) {
            (Action::Upload(command), Some(uploads)) => {
                let Self { transport, inbox, entry, slot, late, .. } = self;
                if let Some(entry) = entry {
                    entry.reply_begins(transport.socket());
                }
                let command = if late.is_late { command.only_continuing() } else { *command };
                let taken = upload::handle(&uploads, (transport, slot), inbox, command).await;
                (logged.received, body_read) = (sends_file.then_some(taken.received), taken.body_read);
                taken.reply
            }
            (Action::Measure(request), _) if logged.method == "PUT" => {
                let (reply, bytes) = self.receive_measurement(&request).await?;
                logged.received = Some(bytes);
                reply
            }
            (action, _) => self.act(action).await?,
        };
        // A measurement may have changed the socket's options.
        let keep_alive = keeps_alive && body_read && !measures;
        let framing = ReplyFraming { head_only, keep_alive };
        Some(PreparedReply { request: logged, reply, framing, paced: !measures, pace })
    }

    /// Sends a reply; returns what to do with the connection.
    async fn send(&mut self, answer: PreparedReply) -> AfterReply {
        let PreparedReply { request, mut reply, mut framing, paced, pace: asked } = answer;
        let status = reply.status();
        if status >= 400 {
            self.late.end();
        }
        let is_running = *self.context.phase.borrow() == ServerPhase::Running;
        framing.keep_alive &= is_running || self.late.may_continue();
        let is_upload = request.received.is_some() && paced;
        let (client, socket) = (self.peer.ip(), self.transport.socket());
        let pace = paced.then(|| self.context.pace.of_reply(reply.length(), asked, client, socket)).flatten();
        if let Some(pace) = pace {
            reply.add(PACE_HEADER, &pace.header());
        }
        let mut queued = reply.queue(framing, SystemTime::now());
        self.sending = Some(LoggedReply { request, status, head: queued.head });
        if let Some(entry) = &self.entry {
            entry.reply_begins(self.transport.socket());
        }
        if let Some(pace) = pace.filter(|_| !framing.head_only) {
            let known = asked.and_then(|asked| asked.known);
            self.paced.begin(&self.context.pace, self.transport.socket(), pace, self.peer.ip(), known);
        }
        let QueuedReply { outgoing, disk, .. } = &mut queued;
        let result =
            self.transport.send(outgoing, &self.context.timeouts, (self.slot.sent(), disk.as_ref())).await;
        self.paced.end(&self.context.pace, self.transport.socket());
        self.is_answered = true;
        let sent = queued.outgoing.sent();
        drop(queued);
        self.reply_ends(sent, result.as_ref().err());
        match result {
            Ok(()) if framing.keep_alive => AfterReply::KeepAlive,
            Ok(()) => AfterReply::Drain(if is_upload { UPLOAD_DRAIN_LIMIT } else { DRAIN_LIMIT }),
            Err(ReplyError::Stalled(_) | ReplyError::Slow(_) | ReplyError::Evicted) => AfterReply::Reset,
            // Closing before the announced length tells the peer that the body is incomplete.
            Err(ReplyError::Send(_) | ReplyError::Disk(_)) => AfterReply::Close,
        }
    }

    /// Logs and counts the reply that was being sent, of which the socket has accepted so many
    /// bytes, head included.
    fn reply_ends(&mut self, sent: Bytes, error: Option<&ReplyError>) {
        let Some(reply) = self.sending.take() else { return };
        let end = (sent.saturating_sub(reply.head), reply.request.started.elapsed());
        reply.log(self.peer, end, error);
        if let Some(entry) = &self.entry {
            entry.reply_ends(reply, end);
        }
    }

    /// Returns whether others than the peer may have read the request: it came unencrypted, from
    /// another host.
    fn is_exposed(&self) -> bool {
        matches!(self.transport, ServerTransport::Plain(_)) && !self.peer.ip().to_canonical().is_loopback()
    }

    /// Receives a measurement's bytes; `None` where the client has closed the connection.
    async fn receive_measurement(&mut self, request: &RequestHead) -> Option<(Reply, Bytes)> {
        let Self { transport, inbox, slot, context, peer, .. } = self;
        slot.receiving();
        let ahead = std::mem::take(inbox).len();
        context.services.measurement.as_ref()?.receive(request, transport, (peer.ip(), ahead)).await
    }

    /// Makes the reply to a request without a body; opens files on a blocking thread. `None` where
    /// the client does not wait for it.
    async fn act(&mut self, action: Action) -> Option<Reply> {
        Some(match action {
            Action::Reply(reply) => reply,
            Action::Metrics => metrics::reply(&self.context.stats).await,
            Action::Measure(request) => self.context.services.measurement.as_ref().map_or_else(
                || Reply::text(404, "no measurements are allowed here"),
                |measurement| measurement.reply(&request, self.transport.socket(), self.peer),
            ),
            Action::Upload(_) => Reply::text(405, "files are only read here"),
            Action::Read(read) => {
                let files = Arc::clone(&self.context.services.static_files);
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
}
