//! Answers: heads, bodies, and what comes before the end of a request's body.

use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::http::{Framing, ResponseHead};
use longhaul_core::units::Bytes;

use super::{Connection, Persistence, Unanswered};
use crate::connect::{Deadline, Received};
use crate::source::http::connection::body::Body;
use crate::source::http::connection::explanation::read_explanation;
use crate::source::http::error::{HttpError, check};

/// How long to read a short body, which most often arrives with its head.
const FRONT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest body that is read so that the connection can be reused; a new connection costs at
/// least one RTT.
pub(super) const MAX_DISCARDED: Bytes = Bytes::kib(64);

/// The most interim answers to one request: an upload of a day with one every 5 s, as `longhaul
/// serve` sends them.
const MAX_INTERIM: u32 = 20_000;
/// The longest processing of an upload that a server announces by 102.
const MAX_PROCESSING: Duration = Duration::from_secs(24 * 60 * 60);

/// What a server has answered while the request's body was being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyAnswer {
    /// Nothing.
    None,
    /// An interim answer (1xx): the server processes the request.
    Interim,
    /// The final answer, which [`Connection::read_head`] returns.
    Final,
}

impl Connection {
    /// Reads the head of the next answer; interim ones (1xx) are skipped.
    ///
    /// The body must be read to its end before the next head. A 102 (Processing, RFC 2518, section
    /// 10.1) to a request that changes something restarts the timeout.
    ///
    /// # Errors
    /// Those of reading and understanding a head: [`HttpError::Timeout`], [`HttpError::Head`],
    /// [`HttpError::ClosedBeforeHead`] and others. A status that is no success is not an error
    /// here: see [`check_status`](Self::check_status).
    pub fn read_head(&mut self) -> Result<ResponseHead, HttpError> {
        let out_of_order = |why| {
            let message = format!("the connection to {} was used out of order: {why}", self.at());
            HttpError::from(Failure::new(FailureKind::Internal, message))
        };
        if !self.body.has_ended() {
            return Err(out_of_order("a head was asked for before the end of the body"));
        }
        let Some(&Unanswered { is_head, is_safe }) = self.in_flight.unanswered.front() else {
            return Err(out_of_order("a head was asked for without a request"));
        };
        if self.persistence.has_ended {
            return Err(HttpError::ClosedBeforeHead(self.at().clone(), Bytes::ZERO));
        }
        // Without the body that was announced, the server would take the next request for it.
        // A body of a later request may still be on its way.
        let lacks_body = self.in_flight.has_unsent_body && self.in_flight.unanswered.len() == 1;
        let still_open = std::mem::replace(&mut self.persistence.reusable, false) && !lacks_body;
        let head = match self.in_flight.early_head.take() {
            Some(head) => head,
            None => self.read_final_head(is_safe)?,
        };
        let bad = |error| HttpError::Head(self.at().clone(), error);
        let framing = if is_head { Framing::Length(Bytes::ZERO) } else { head.framing().map_err(bad)? };
        self.in_flight.unanswered.pop_front();
        self.body = Body::new(framing);
        self.persistence = Persistence {
            reusable: still_open && head.keeps_alive() && framing != Framing::UntilClose,
            has_ended: head.ends_connection(),
            has_answered: true,
            has_waited: false,
            timeout: head.text("keep-alive").and_then(timeout_of).or(self.persistence.timeout),
        };
        Ok(head)
    }

    fn read_final_head(&mut self, is_safe: bool) -> Result<ResponseHead, HttpError> {
        let cancel = self.cancel.clone();
        let (began, mut deadline) = (Instant::now(), Deadline::new(&cancel, self.timeouts.head));
        loop {
            let head = self.read_any_head(&deadline)?;
            if head.status() == 102 && !is_safe && began.elapsed() < MAX_PROCESSING {
                deadline = Deadline::new(&cancel, self.timeouts.head);
            }
            if !is_interim(head.status()) {
                return Ok(head);
            }
            check(&deadline, self.at(), "its answer")?;
        }
    }

    /// Reads the next head, interim or final.
    fn read_any_head(&mut self, deadline: &Deadline<'_>) -> Result<ResponseHead, HttpError> {
        let head = self.transport.read_head(deadline)?;
        self.in_flight.interim = if is_interim(head.status()) { self.in_flight.interim + 1 } else { 0 };
        if self.in_flight.interim > MAX_INTERIM {
            let message = format!(
                "{} sends interim answers (1xx) without end: the server is broken or hostile",
                self.at()
            );
            return Err(Failure::new(FailureKind::Protocol, message).into());
        }
        Ok(head)
    }

    /// Waits until the server asks for the body of the request just sent (100 Continue), for
    /// `limit` at most.
    ///
    /// Returns whether to send the body: not where the final answer has come already. A server that
    /// answers nothing may not know the expectation (RFC 9110, section 10.1.1).
    ///
    /// # Errors
    /// Those of [`read_head`](Self::read_head).
    pub fn await_continue(&mut self, limit: Duration) -> Result<bool, HttpError> {
        let cancel = self.cancel.clone();
        let deadline = Deadline::new(&cancel, limit);
        while self.in_flight.early_head.is_none() {
            deadline.check_cancel()?;
            let left = deadline.left();
            if left.is_zero() {
                return Ok(true);
            }
            if self.transport.is_readable(left.min(self.timeouts.tick)) {
                let head = self.read_any_head(&Deadline::new(&cancel, self.timeouts.head))?;
                match head.status() {
                    100 => return Ok(true),
                    status if is_interim(status) => {}
                    _ => self.in_flight.early_head = Some(head),
                }
            }
        }
        Ok(false)
    }

    /// Returns, without waiting, what the server has answered since the last call, before all of
    /// the request's body was sent.
    ///
    /// # Errors
    /// Those of [`read_head`](Self::read_head).
    pub fn poll_answer(&mut self) -> Result<EarlyAnswer, HttpError> {
        let (mut answer, cancel) = (EarlyAnswer::None, self.cancel.clone());
        while self.in_flight.early_head.is_none() {
            if !self.transport.is_readable(Duration::ZERO) {
                return Ok(answer);
            }
            answer = EarlyAnswer::Interim;
            let head = self.read_any_head(&Deadline::new(&cancel, self.timeouts.head))?;
            self.in_flight.early_head = Some(head).filter(|head| !is_interim(head.status()));
        }
        Ok(EarlyAnswer::Final)
    }

    /// Reads some of the current body to the front of `buffer`.
    ///
    /// With a known length and without TLS this is one recv(2) straight into `buffer`, never past
    /// the body.
    ///
    /// # Errors
    /// [`HttpError::Receive`], that of a cancellation, and those of a body that is cut off or
    /// breaks its coding.
    pub fn read_body(&mut self, buffer: &mut [u8]) -> Result<Received, HttpError> {
        if self.cancel.is_cancelled() {
            return Err(Failure::interrupted().into());
        }
        if buffer.is_empty() {
            return Ok(Received::Data(0));
        }
        let read = self.body.read(&mut self.transport, buffer);
        self.persistence.has_ended |= self.body.is_malformed();
        self.persistence.reusable &= read.is_ok() && !self.persistence.has_ended;
        read
    }

    /// Returns an error where `head` is no success (2xx), with the server's advice about another
    /// try.
    ///
    /// # Errors
    /// [`HttpError::RangeNotSatisfiable`] for 416, else [`HttpError::Status`].
    pub fn check_status(&self, head: &ResponseHead) -> Result<(), HttpError> {
        HttpError::of_status(self.at(), head, || None)
    }

    /// Returns an error where `head` is no success, with the server's own words, which are read
    /// from its body.
    ///
    /// # Errors
    /// As of [`check_status`](Self::check_status).
    pub fn check_answer(&mut self, head: &ResponseHead) -> Result<(), HttpError> {
        let at = self.at().clone();
        HttpError::of_status(&at, head, || read_explanation(head, self))
    }

    /// Reads the rest of a short body so that the connection can be used again; returns whether
    /// that worked.
    ///
    /// A short body arrives with its head; where it does not, a new connection costs less than the
    /// wait.
    pub(crate) fn discard_body(&mut self) -> bool {
        let mut scrap = [0; 4096];
        let (mut left, began) = (MAX_DISCARDED.as_usize(), Instant::now());
        while self.reusable() && began.elapsed() < FRONT_TIMEOUT {
            match self.read_body(&mut scrap) {
                Ok(Received::End { .. }) => return true,
                Ok(Received::Data(n)) if n < left => left -= n,
                _ => break,
            }
        }
        // The rest of the body would be taken for the next answer.
        self.retire();
        false
    }

    /// Reads the current body until its end, until it exceeds `limit`, or until `patience` has
    /// passed; returns whether that is all of it, too.
    ///
    /// # Errors
    /// See [`read_body`](Self::read_body).
    pub(crate) fn read_all(
        &mut self,
        limit: Bytes,
        patience: Duration,
    ) -> Result<(Vec<u8>, bool), HttpError> {
        let (began, mut bytes, mut buffer) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
        while bytes.len() <= limit.as_usize() && began.elapsed() < patience {
            match self.read_body(&mut buffer)? {
                Received::Data(n) => bytes.extend_from_slice(&buffer[..n]),
                Received::Idle => {}
                Received::End { .. } => return Ok((bytes, true)),
            }
        }
        Ok((bytes, false))
    }

    /// Reads the front of the current body, `limit` at most, as far as it arrives soon after its
    /// head.
    pub(crate) fn read_front(&mut self, limit: Bytes) -> Vec<u8> {
        let mut front = vec![0; limit.as_usize()];
        let (mut length, began) = (0, Instant::now());
        while began.elapsed() < FRONT_TIMEOUT
            && let Ok(Received::Data(more @ 1..)) = self.read_body(&mut front[length..])
        {
            length += more;
        }
        front.truncate(length);
        front
    }
}

/// Returns whether a status is interim. 101 is not: it would change the protocol, which no request
/// asks for.
fn is_interim(status: u16) -> bool {
    matches!(status, 100 | 102..=199)
}

/// Reads the timeout out of a Keep-Alive field, "timeout=5, max=100" (RFC 2068, section 19.7.1.1).
fn timeout_of(field: &str) -> Option<Duration> {
    let timeout = field.split(',').find_map(|parameter| parameter.trim().strip_prefix("timeout="))?;
    timeout.trim().parse().ok().map(Duration::from_secs)
}
