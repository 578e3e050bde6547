//! Runs one stream until no work is left, or the stream drains, is refused or fails.

use std::time::Duration;

use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::{Cause, Failure};
use longhaul_core::retry::{Backoff, Retry};
use longhaul_core::units::Bytes;

use super::stream_set::StreamSet;
use crate::retry_loop::{Rest, Retries};
use crate::source::StreamWorker;
use crate::transfer::{Direction, Round, SourceLiveness, Stream};

/// The mean wait before asking a server again that sent another file: a load balancer may choose
/// another backend.
const DISAGREEMENT_WAIT: Duration = Duration::from_millis(200);

/// Runs until all bytes have arrived, or the stream drains or gives up.
pub(super) fn run_stream<D: Direction>(set: &StreamSet<'_, D>, mut stream: Stream<'_, D>) {
    let mut worker = set.peer.worker();
    let result = work(set, &mut stream, worker.as_mut());
    worker.leave(&mut stream);
    if let Err(error) = result {
        give_up(set, &stream, error);
    }
    let id = stream.id();
    stream.leave();
    set.round.running.unregister(id);
    if set.round.schedule.is_done() {
        // Other streams may still wait for a connection.
        set.round.interrupt_all();
    }
}

/// Waits until all bytes have arrived at most.
impl<D: Direction> Rest for Round<'_, D> {
    fn rest(&self, wait: Duration) -> bool {
        self.schedule.rest(wait, &self.end.stop);
        false
    }
}

/// Runs the worker with retries.
///
/// # Errors
/// The error for which the stream gives up.
fn work<D: Direction>(
    set: &StreamSet<'_, D>,
    stream: &mut Stream<'_, D>,
    worker: &mut dyn StreamWorker<D>,
) -> Result<(), Failure> {
    let round = set.round;
    let emit = |event: &_| round.transfer.emit(event);
    let retries = Retries { most: round.options.retries, stream: stream.id(), emit: &emit, rest: round };
    // The error after which the whole file was requested.
    let mut of_ranges = None;
    let attempt = |of_ranges: &mut Option<Failure>, backoff: &mut Backoff| {
        let Err(mut error) = worker.work(stream) else { return Ok(()) };
        stream.disconnected();
        let delivered = stream.take_delivered();
        if !worker.restarts() {
            backoff.received(delivered);
        }
        if delivered > Bytes::ZERO {
            *of_ranges = None;
        }
        if stream.is_over() {
            return Ok(());
        }
        if error.cause == Cause::Interrupted {
            error = Failure::stolen(set.peer.shown());
        }
        if error.retry == Retry::AtOnce {
            if error.cause == Cause::OtherFile {
                round.end.stop.sleep(DISAGREEMENT_WAIT.mul_f64(0.5 + fastrand::f64()));
            }
            return Err(error);
        }
        if set.leaves_refused(stream.id(), &error, delivered > Bytes::ZERO) {
            return Ok(());
        }
        // A stream or source that gets bytes shows that the server, or another one, does not fail
        // at ranges.
        let is_alone = !set.serves_another(stream.id()) && !round.has_other_source(set.index);
        if is_alone && error.may_be_of_ranges() && worker.falls_back(!error.retry.is_permitted(backoff)) {
            tracing::info!("{error}: the whole file is requested instead of ranges");
            set.keep_only(stream.id());
            *of_ranges = Some(error);
            let mut again = Failure::interrupted();
            again.retry = Retry::AtOnce;
            return Err(again);
        }
        Err(error)
    };
    let result = retries.repeat(&mut of_ranges, attempt, |_, error| error.retry);
    // A server that answers everything wrongly is explained by its first answer.
    result.map_err(|error| of_ranges.unwrap_or(error))
}

/// Leaves the leases to other streams; if none is left, `error` becomes the round's error.
fn give_up<D: Direction>(set: &StreamSet<'_, D>, stream: &Stream<'_, D>, error: Failure) {
    let round = set.round;
    // Every stream of this source would receive another file.
    if matches!(error.cause, Cause::OtherFile | Cause::EveryStream) {
        set.drop_source(SourceLiveness::Failed);
    } else if set.report_refusal(stream.id(), &error) {
        round.end.note_given_up(error.into());
        return;
    }
    if round.running.leave_to_others(stream.id()) {
        let lost = Warning::StreamLost { stream: stream.id(), reason: error.to_string() };
        round.transfer.emit(&Event::Warning(lost));
        round.end.note_given_up(error.into());
        if set.streams().is_empty() {
            set.drop_source(SourceLiveness::Failed);
        }
    } else {
        round.end.fail(error.into());
    }
}
