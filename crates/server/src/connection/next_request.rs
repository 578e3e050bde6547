//! Reads the next request of a connection.

use std::time::Duration;

use longhaul_core::proto::http::{MAX_HEAD, RequestHead};
use tokio::time::{timeout, timeout_at};

use crate::connection::http_connection::HttpConnection;
use crate::connection::late_requests::NEXT_REQUEST;
use crate::connection::stall_detector::StallDetector;
use crate::context::ServerContext;
use crate::shutdown::ServerPhase;

/// The outcome of waiting for a request.
pub(crate) enum NextRequest {
    Request(RequestHead),
    /// An invalid or incomplete request: reply with this status, then close.
    Refused(u16, String),
    /// The peer closed or idled too long, the server finishes, or the connection is evicted.
    Closed,
}

impl HttpConnection {
    /// Reads the next request: the first byte within the idle timeout, the rest within the head
    /// timeout.
    pub(crate) async fn next(&mut self) -> NextRequest {
        self.late.is_late = *self.context.phase.borrow() != ServerPhase::Running;
        let blank = self.inbox.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        self.inbox.drain(..blank);
        if self.inbox.is_empty() {
            // Frees the buffer of a large head: the connection may idle for long.
            self.inbox = Vec::new();
            if !self.first_bytes().await {
                return NextRequest::Closed;
            }
        }
        let deadline = tokio::time::Instant::now() + self.context.timeouts.head;
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
            // Only a line's end completes a head; parsing after each byte would cost the square of
            // its length.
            may_be_complete =
                self.inbox[before..].contains(&b'\n') || self.inbox.len() >= MAX_HEAD.as_usize();
        }
    }

    /// Waits for the first bytes of a request; `false` where the connection must be closed instead.
    async fn first_bytes(&mut self) -> bool {
        let Self { transport, inbox, context, late, .. } = self;
        let ServerContext { phase, timeouts, .. } = context;
        let mut stall = StallDetector::new(transport.socket(), timeouts.idle, timeouts.slowest);
        let received = async {
            loop {
                match timeout(timeouts.idle, transport.read(inbox)).await {
                    Ok(read) => return matches!(read, Ok(1..)),
                    // A slow peer may still be receiving the last reply: the connection is not
                    // idle.
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
        late.is_late = true;
        late.may_continue() && timeout(NEXT_REQUEST, received).await == Ok(true)
    }

    /// Returns whether the peer of an idle connection waits for an answer: it has sent a request,
    /// or has just connected for one.
    pub(crate) async fn awaits_answer(&mut self) -> bool {
        let Self { transport, inbox, is_answered, .. } = self;
        !*is_answered
            || !inbox.is_empty()
            || matches!(timeout(Duration::ZERO, transport.read(inbox)).await, Ok(Ok(1..)))
    }
}
