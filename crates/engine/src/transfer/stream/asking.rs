//! A stream's connection, what it asks for, and the heads of the answers.

use std::time::{Duration, Instant};

use longhaul_core::event::Event;
use longhaul_core::plan;
use longhaul_core::proto::http::RangeAnswer;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::tcp_info;

use super::{Pacing, Request, Stream};
use crate::sink::arrivals::Arrivals;
use crate::source::http::Connection;
use crate::transfer::buffer;
use crate::transfer::error::TransferError;

/// Its multiples spread evenly over 0 to 1, however many there are.
const GOLDEN: f64 = 0.618_034;
/// Requests sent ahead of the one that is answered: a server reads them as it comes to them.
const MOST_AHEAD: usize = 64;

impl Stream<'_> {
    /// Makes sure that there is a connection on which nothing is under way.
    pub(super) fn connect(&mut self) -> Result<(), TransferError> {
        // An answer that nobody wants any more would have to be read first.
        if self.connection.as_ref().is_some_and(|open| open.reusable() && open.unanswered() == 0) {
            return Ok(());
        }
        self.abandon();
        let cancel = self.seat.renew_cancel();
        // Whoever sent this stream away meanwhile has cancelled the wait before.
        if self.seat.is_to_go() {
            cancel.cancel();
        }
        let connection = self.client.connect(&mut self.place, &cancel)?;
        let is_first = !self.has_begun;
        self.adopt(connection);
        if is_first {
            // Who is sent away meanwhile finds that out when it is to ask.
            cancel.sleep(self.turn());
        }
        Ok(())
    }

    /// Returns how long to wait before the first request of all.
    ///
    /// Several slow starts that begin at once send their clumps at once, and each takes the others' for a queue that is its own
    /// doing: CUBIC's HyStart ends slow start at 16 ms of it. So they are spread over the round trip, evenly for any number of them.
    fn turn(&self) -> Duration {
        match self.shared.crew.wanted() {
            ..=1 => Duration::ZERO,
            _ => self.arrivals.rtt.get().mul_f64((self.seat.id as f64 * GOLDEN).fract()),
        }
    }

    pub(super) fn adopt(&mut self, connection: Connection) {
        let rtt = tcp_info::read(connection.socket()).ok().and_then(|info| info.rtt());
        self.shared.sockets.add(self.seat.id, connection.socket());
        self.shared.emit(&Event::Connected { stream: self.seat.id, peer: connection.peer(), rtt });
        let rtt = rtt.unwrap_or_default();
        self.seat.connected(Some(rtt));
        let arrivals = Arrivals::new(rtt, self.options.hold_window, Instant::now());
        self.arrivals = match self.shared.crew.wanted() {
            ..=1 => arrivals,
            several => arrivals.of_several(buffer::share_in_flight(rtt, several)),
        };
        self.pacing = Pacing::Open;
        self.has_begun = true;
        self.connection = Some(connection);
    }

    /// Claims a block and asks for it; `false` where none is left, or this stream is to go.
    pub(super) fn ask_next(&mut self) -> Result<bool, TransferError> {
        if self.seat.is_to_go() {
            return Ok(false);
        }
        // Claimed from here on: whatever fails, `abandon` gives it back.
        let Some(block) = self.shared.work.claim(&self.seat) else { return Ok(false) };
        let if_range = self.remote.if_range();
        self.requested.push_back(Request { block, if_same: if_range.is_some() });
        let request = self.remote.request(block).map(|r| r.only_if(if_range));
        if let Some(connection) = &mut self.connection {
            connection.send_get(request.as_ref())?;
        }
        Ok(true)
    }

    /// Keeps enough requests under way that the server never waits for the next.
    pub(super) fn ask_ahead(&mut self) -> Result<(), TransferError> {
        loop {
            let Some(connection) = &self.connection else { return Ok(()) };
            // A body of unknown length is the last thing on its connection.
            if self.remote.size.is_none() || !connection.reusable() {
                return Ok(());
            }
            let (ahead, requests) = self.shared.work.asked(&self.seat);
            // Others have taken over some of it: the answers to that come before those to anything new.
            if requests != self.requested.len() {
                return Ok(());
            }
            let (arrivals, streams) = (&self.arrivals, self.shared.crew.wanted());
            // A server that paces may begin with the rate of last time, and one stream leaves nothing to others.
            let enough = if self.remote.paces && streams == 1 {
                Bytes::new(u64::MAX)
            } else {
                plan::ask_ahead(arrivals.expected, arrivals.data_rtt(), streams)
            };
            let enough = self.shared.work.enough(&self.seat, enough);
            if ahead >= enough || requests >= MOST_AHEAD || !self.ask_next()? {
                return Ok(());
            }
        }
    }

    pub(super) fn read_head(&mut self) -> Result<(), TransferError> {
        let (Some(connection), Some(&Request { block: asked, if_same })) =
            (&mut self.connection, self.requested.front())
        else {
            return Ok(());
        };
        if self.shared.work.front(&self.seat).is_none_or(|front| front.start() != asked.start()) {
            return Err(TransferError::TakenOver(self.remote.shown.clone()));
        }
        let head = connection.read_head()?;
        let remote = self.remote;
        let shown = || remote.shown.clone();
        connection.check_status(&head)?;
        let answer = RangeAnswer::of(&head, remote.request(asked).as_ref())
            .map_err(|source| TransferError::Range { url: shown(), source })?;
        let same = remote.is_same(&head, if_same);
        match answer {
            RangeAnswer::Whole { total } if same && remote.whole && total == remote.size => {
                self.start_over();
                Ok(())
            }
            RangeAnswer::Whole { .. } if same && !remote.whole && if_same => {
                remote.refuse_if_range();
                Err(TransferError::IfRangeRefused(shown()))
            }
            RangeAnswer::Whole { .. } if same && !remote.whole => Err(TransferError::RangesIgnored(shown())),
            RangeAnswer::Part { range, total } if same && total.is_none_or(|t| Some(t) == remote.size) => {
                self.shorten_front(asked, range.end());
                self.seat.answered();
                self.open = true;
                Ok(())
            }
            _ => Err(TransferError::changed(
                shown(),
                remote.validator.as_ref(),
                head.validator().as_ref(),
                same,
            )),
        }
    }

    /// Receives a file from its start again, where the server knows no ranges.
    ///
    /// That is no progress, however much comes: only a whole file is.
    fn start_over(&mut self) {
        if let Some(before) = self.shared.work.start_over(&self.seat) {
            self.broke_off = self.broke_off.max(Some(before));
        }
        self.open = true;
    }

    /// A server may send less than was asked for (RFC 9110, section 15.3.7); the rest is for anyone.
    fn shorten_front(&self, asked: ByteRange, end: u64) {
        if end < asked.end() {
            self.shared.work.give_back_end(&self.seat, end);
        }
    }
}
