//! From the socket into segments, and from there to the writers.

use std::time::{Duration, Instant};

use longhaul_core::pace::Pace;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rate};

use super::{Pacing, Stream};
use crate::sink::arrivals::ALIVE;
use crate::sink::edge::{PacedWindow, Turn};
use crate::sink::segment_pool::Flow;
use crate::source::http::{Connection, HttpError, Read};
use crate::threads::add;
use crate::transfer::error::TransferError;
use crate::transfer::{buffer, edge};

/// How long to wait for a free segment before looking whether to stop.
const LOOK_UP: Duration = Duration::from_millis(100);
/// A partly filled segment of a slow stream is written after this time, so that a crash costs little.
const SLOW_FLUSH: Duration = Duration::from_secs(5);
/// A stream that was sent away still receives what comes within this time, or two round trips.
const SOON: Duration = Duration::from_millis(500);

impl Stream<'_> {
    /// Receives the front block, which is shortened as it arrives, so that a failure keeps the rest.
    pub(super) fn receive_block(&mut self) -> Result<(), TransferError> {
        self.choose_pacing();
        while let Some(left) = self.front() {
            self.need_segment(left)?;
            let (Some(segment), Some(connection)) = (&mut self.segment, &mut self.connection) else {
                return Ok(());
            };
            let spare = segment.spare();
            let mut most = self.shared.read_at_most(spare.len().min(left.len().as_usize()));
            if let Pacing::On(window) = &mut self.pacing {
                if window.carries(Instant::now()) {
                    connection.send_window_carrier()?;
                }
                match window.turn(connection.socket(), most) {
                    Turn::Read(some) => most = some.min(most),
                    Turn::Wait => {
                        self.check_alive()?;
                        continue;
                    }
                    Turn::Off => self.end_pacing(),
                }
            }
            let (Some(segment), Some(connection)) = (&mut self.segment, &mut self.connection) else {
                return Ok(());
            };
            match connection.read_body(&mut segment.spare()[..most])? {
                Read::Data(n) => {
                    let own = self.shared.work.arrived(&self.seat, n);
                    segment.fill(own);
                    let done = segment.is_full() || left.len().get() == own as u64 || own < n;
                    self.arrived(own);
                    if done {
                        self.flush();
                        self.ask_ahead()?;
                    }
                }
                Read::Idle => {}
                // The end of a file whose length nobody told, and which has not become shorter meanwhile.
                Read::End if self.remote.size.is_none() && Some(left.start()) >= self.broke_off => {
                    self.flush();
                    return Ok(());
                }
                Read::End => {
                    return Err(HttpError::ClosedEarly {
                        place: connection.place().clone(),
                        got: self.arrivals.total,
                        expected: None,
                    }
                    .into());
                }
            }
            if self.segment_since.elapsed() > SLOW_FLUSH {
                self.flush();
            }
            self.check_alive()?;
        }
        self.flush();
        Ok(())
    }

    /// Returns what is still to come of the block; a stream that was sent away leaves to the others what would take it long.
    fn front(&self) -> Option<ByteRange> {
        let work = &self.shared.work;
        if self.seat.is_to_go() {
            let soon = SOON.max(self.arrivals.rtt.get() * 2);
            work.give_back_beyond(&self.seat, self.arrivals.rate.bytes_in(soon));
        }
        work.front(&self.seat).filter(|left| !left.is_empty())
    }

    /// Paces the server through the window, where nothing else does: from a connection's first bytes on, or never.
    fn choose_pacing(&mut self) {
        if !matches!(self.pacing, Pacing::Open) {
            return;
        }
        let limit = match self.options.pace {
            Some(Pace::Rate(rate)) => Some(rate),
            _ => None,
        };
        let (asked, _) = self.shared.work.asked(&self.seat);
        let long = asked + self.shared.work.claimable() >= edge::WORTH_IT;
        let alone = self.shared.crew.running() == 1 && self.remote.size.is_some();
        let open = |connection: &Connection| edge::is_possible(self.remote, connection);
        let wanted =
            self.options.pace.is_some() && long && alone && self.connection.as_ref().is_some_and(open);
        let rtt = self.arrivals.rtt;
        self.pacing = if wanted {
            let window = PacedWindow::new(rtt, limit, buffer::larger_than_kernels(rtt, 1), Instant::now());
            Pacing::On(Box::new(window))
        } else {
            Pacing::Off
        };
        if wanted {
            self.arrivals.release();
        }
        self.shared.set_paced(wanted);
    }

    fn end_pacing(&mut self) {
        self.pacing = Pacing::Off;
        self.arrivals.take_back();
        self.shared.set_paced(false);
    }

    /// Reads what follows the last byte of a block, which is nothing, or the end of a chunked body.
    pub(super) fn end_body(&mut self) -> Result<(), TransferError> {
        while let Some(connection) = &mut self.connection {
            match connection.read_body(&mut [0])? {
                Read::End => break,
                Read::Idle => self.check_alive()?,
                // More than was announced, or than is still wanted. The connection is of no more use.
                Read::Data(_) => self.abandon(),
            }
        }
        Ok(())
    }

    fn need_segment(&mut self, left: ByteRange) -> Result<(), TransferError> {
        // The others bring about as much.
        let streams = self.shared.crew.running() as u64;
        let rate = Rate::bits_per_sec(self.arrivals.rate.as_bits_per_sec().saturating_mul(streams));
        let flow = Flow { rate, rtt: self.arrivals.rtt };
        while self.segment.is_none() {
            if self.shared.stop.is_cancelled() {
                return Err(HttpError::Cancelled.into());
            }
            let began = Instant::now();
            self.segment = self.inlet.take(left, LOOK_UP, flow).map_err(TransferError::Memory)?;
            self.segment_since = Instant::now();
            self.shared.work.excuse(&self.seat);
            let waited = began.elapsed();
            add(&self.shared.waits.writer, waited);
            self.arrivals.paused(waited);
        }
        Ok(())
    }

    fn arrived(&mut self, bytes: usize) {
        if let Pacing::On(window) = &mut self.pacing {
            window.read(bytes);
        }
        if let Some(connection) = &self.connection {
            let share = self.shared.window_share(self.arrivals.rtt);
            self.arrivals.add(Bytes::new(bytes as u64), share, connection.socket(), Instant::now());
            self.seat.set_rate(self.arrivals.rate);
        }
        // Last, for `--limit` waits here.
        self.shared.received(bytes);
        if self.shared.limiter.is_some() {
            self.shared.work.excuse(&self.seat);
        }
    }

    pub(super) fn check_alive(&mut self) -> Result<(), TransferError> {
        if self.shared.stop.is_cancelled() {
            return Err(HttpError::Cancelled.into());
        }
        if self.arrivals.stalled(self.options.stall, Instant::now()) {
            return Err(TransferError::Stalled {
                url: self.remote.shown.clone(),
                least: ALIVE,
                waited: self.options.stall,
            });
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) {
        if let Some(segment) = self.segment.take() {
            self.inlet.hand_over(segment);
        }
    }
}
