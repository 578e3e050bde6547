//! One STOR or ESTO in MODE E: streams send the blocks; this thread follows the control connection
//! and ends the data connections.
//!
//! ```text
//!   EPSV, STOR | ESTO A 0 --> N data connections: blocks .. --> all ranges sent --> EOD on each, the last with EODC --> 226
//!        111, 112 markers <---------------------------------------------'
//! ```

use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use longhaul_core::proto::gridftp::{BlockHeader, Reply, parse_range_marker};
use longhaul_core::ranges::RangeSet;

use super::FtpUpload;
use super::block_worker::{BlockPeer, send_header};
use super::data_sender::DataSender;
use crate::source::gridftp::{FtpError, StoreSession, StoreStart};
use crate::streams::CountControl;
use crate::transfer::{RoundEnd, SourceLiveness};
use crate::upload::error::UploadError;
use crate::upload::range_worker::in_flight;
use crate::upload::ranges::run_round;

/// The timeout for the server's reply after a failed store: the reply explains more than a closed
/// data connection.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
/// The interval at which the control connection is read while streams send.
const CONTROL_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Sends the ranges that the server lacks, and returns once the server has stored all of them. Adds
/// ranges that the server reports as stored to `stored`.
///
/// # Errors
/// [`UploadError`].
pub(super) fn send(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    (held, start): (&RangeSet, StoreStart),
    control: CountControl,
    stored: &mut RangeSet,
) -> Result<(), UploadError> {
    let context = upload.context;
    let progress = context.progress;
    let address = session.listen_for_blocks(&progress.cancel)?;
    let is_one = control.streams() == 1 && !control.is_controlled();
    let pace = if is_one { context.request.transfer.pace } else { context.pace_of_several() };
    let at = upload.at(session);
    let end = RoundEnd::new(progress.cancel.child());
    let peer = BlockPeer::new(context, session.dialler(address), (context.shared_pace(pace), at), &end.stop);
    let verb = session.begin(start, progress.size - held.total(), &progress.cancel)?;
    let mut report = Report { verb, stored, last: Instant::now(), reply: None };
    let sent = run_round(&context, (&peer, &end), held, control, |ended, set| {
        while ended.recv_timeout(CONTROL_CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if !peer.is_over()
                && let Err(error) = report.read(session)
            {
                peer.fail(error);
            }
            if peer.is_over() && set.progress().is_usable() {
                set.drop_source(SourceLiveness::Failed);
                // Wakes streams that wait for work.
                set.round.schedule.change(|_| ());
            }
        }
    });
    if let Some(error) = peer.failure.lock().take() {
        return Err(report.explain(session, error));
    }
    sent?;
    end_connections(upload, session, &peer, &mut report)
}

/// Sends EOD on every data connection, on the last one with the number of connections, and waits
/// until the server has stored all.
fn end_connections(
    upload: &FtpUpload<'_, '_>,
    session: &mut StoreSession<'_>,
    peer: &BlockPeer<'_>,
    report: &mut Report<'_>,
) -> Result<(), UploadError> {
    let progress = upload.context.progress;
    let mut connections = std::mem::take(&mut *peer.sent.lock());
    if connections.is_empty() {
        // An empty file needs a data connection too.
        let connection = DataSender::new(peer.dialler.dial(&progress.cancel)?);
        connections.push(connection.map_err(|error| peer.broken(error))?);
    }
    let mut clock = StallClock {
        limit: upload.context.request.transfer.stall,
        since: Instant::now(),
        in_flight: u64::MAX,
    };
    let sockets: Result<Vec<_>, _> =
        connections.iter().map(|connection| connection.socket().try_clone()).collect();
    let sockets = sockets.map_err(|error| peer.broken(error))?;
    let in_flight = || sockets.iter().fold(0, |sum, socket| sum + in_flight(socket).unwrap_or_default());
    let channels = connections.len();
    for (number, connection) in connections.iter_mut().enumerate() {
        let header = if number + 1 == channels {
            BlockHeader::end_of_file(channels as u64)
        } else {
            BlockHeader::end_of_data()
        };
        let wait = || {
            progress.check_cancel()?;
            report.read(session)?;
            clock.check(in_flight(), report.last).map_err(|waited| UploadError::stalled(&peer.at, waited))
        };
        let sent = send_header(connection, header, wait, |error| peer.broken(error));
        sent.map_err(|error| report.explain(session, error))?;
    }
    loop {
        match report.reply.take() {
            Some(reply) if reply.is_positive() => return upload.await_acknowledgement(&peer.at, in_flight),
            Some(reply) => return Err(session.control().refused(report.verb, reply).into()),
            None => {}
        }
        progress.check_cancel()?;
        let reply = session.control().poll_reply()?;
        reply.into_iter().for_each(|reply| report.take(reply));
        clock
            .check(in_flight(), report.last)
            .map_err(|waited| session.control().timeout("storing the file", waited))?;
    }
}

/// The server's reports on a store.
struct Report<'a> {
    verb: &'static str,
    stored: &'a mut RangeSet,
    /// The time of the last report.
    last: Instant,
    /// The reply that ends the store.
    reply: Option<Reply>,
}

impl Report<'_> {
    /// Reads replies that have arrived; fails if the server ends the store early.
    fn read(&mut self, session: &mut StoreSession<'_>) -> Result<(), UploadError> {
        while let Some(reply) = session.control().poll_arrived()? {
            self.take(reply);
        }
        match self.reply.take() {
            None => Ok(()),
            Some(reply) if reply.is_positive() => {
                Err(session.control().unrequested("the end of the upload").into())
            }
            Some(reply) => Err(session.control().refused(self.verb, reply).into()),
        }
    }

    fn take(&mut self, reply: Reply) {
        self.last = Instant::now();
        if let Some(ranges) = parse_range_marker(&reply) {
            ranges.iter().for_each(|range| self.stored.insert(range));
        }
        if !reply.is_preliminary() {
            self.reply.get_or_insert(reply);
        }
    }

    /// Returns the server's error if it arrives soon, else `error`.
    fn explain(&mut self, session: &mut StoreSession<'_>, error: UploadError) -> UploadError {
        if !matches!(error, UploadError::Send(..)) {
            return error;
        }
        let began = Instant::now();
        while began.elapsed() < REFUSAL_PATIENCE {
            match session.control().poll_reply() {
                Ok(reply) => reply.into_iter().for_each(|reply| self.take(reply)),
                Err(FtpError::Busy { at, reply }) => return FtpError::Busy { at, reply }.into(),
                Err(_) => return error,
            }
            if let Some(reply) = self.reply.take_if(|reply| !reply.is_positive()) {
                return session.control().refused(self.verb, reply).into();
            }
        }
        error
    }
}

/// Detects a server that neither accepts bytes nor reports.
struct StallClock {
    limit: Duration,
    since: Instant,
    in_flight: u64,
}

impl StallClock {
    /// Fails with the time since the last progress, if longer than the limit.
    fn check(&mut self, in_flight: u64, reported: Instant) -> Result<(), Duration> {
        if in_flight != self.in_flight {
            (self.in_flight, self.since) = (in_flight, Instant::now());
        }
        self.since = self.since.max(reported);
        if self.since.elapsed() > self.limit { Err(self.limit) } else { Ok(()) }
    }
}
