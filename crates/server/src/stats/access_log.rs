//! The access log: one line for each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::proto::http::RequestHead;
use longhaul_core::units::{Bytes, Rate};

use crate::connection::transport::ReplyError;

/// A request, as log and statistics name it.
pub(crate) struct LoggedRequest {
    pub(crate) method: String,
    pub(crate) target: String,
    /// The name of the token that allowed the request.
    pub(crate) token: Option<Arc<str>>,
    /// Bytes of its body that were read; `None` except for uploads.
    pub(crate) received: Option<Bytes>,
    pub(crate) started: Instant,
}

impl LoggedRequest {
    /// Names the parsed request that has just arrived.
    pub(crate) fn of(request: &RequestHead) -> Self {
        Self::named(request.method(), request.target())
    }

    /// Names an invalid or incomplete request.
    pub(crate) fn invalid() -> Self {
        Self::named("-", "-")
    }

    fn named(method: &str, target: &str) -> Self {
        let (method, target) = (method.to_owned(), target.to_owned());
        Self { method, target, token: None, received: None, started: Instant::now() }
    }
}

/// A reply that is being sent; an eviction may cut it.
pub(crate) struct LoggedReply {
    pub(crate) request: LoggedRequest,
    pub(crate) status: u16,
    /// The length of the head.
    pub(crate) head: Bytes,
}

impl LoggedReply {
    /// Logs the end of the reply: the bytes of the body that the socket has accepted, the time, and
    /// the `error` that cut it short.
    pub(crate) fn log(&self, peer: SocketAddr, (sent, took): (Bytes, Duration), error: Option<&ReplyError>) {
        let Self { request, status, .. } = self;
        let LoggedRequest { method, target: path, token, received, .. } = request;
        // The bytes of the file, received or sent.
        let moved = received.unwrap_or(sent);
        let token = token.as_deref();
        let seconds = format_args!("{:.3}", took.as_secs_f64()).to_string();
        // The time ends when the socket has accepted the last byte; the peer receives it up to a
        // send buffer later.
        let goodput = Rate::over(moved, took);
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
