//! Runs one stream until no work is left, or the stream drains, is refused or fails.

use std::time::Duration;

use longhaul_core::event::{Event, Warning};
use longhaul_core::retry::Backoff;
use longhaul_core::units::Bytes;

use super::stream_set::StreamSet;
use crate::source::StreamWorker;
use crate::transfer::Stream;
use crate::transfer::error::{Cause, Retry, SourceError};

/// The mean wait before asking a server again that sent another file: a load balancer may choose
/// another backend.
const DISAGREEMENT_WAIT: Duration = Duration::from_millis(200);

/// Runs until all bytes have arrived, or the stream drains or gives up.
pub(super) fn run_stream(set: &StreamSet<'_>, mut stream: Stream<'_>) {
    let mut worker = set.source.worker();
    let error = work(set, &mut stream, worker.as_mut());
    worker.leave(&mut stream);
    if let Some(error) = error {
        give_up(set, &stream, error);
    }
    let id = stream.id();
    stream.leave();
    set.transfer.unregister(id);
    if set.transfer.schedule.is_done() {
        // Other streams may still wait for a connection.
        set.transfer.interrupt_all();
    }
}

/// Runs the worker with retries; returns the error for which the stream gives up.
fn work(set: &StreamSet<'_>, stream: &mut Stream<'_>, worker: &mut dyn StreamWorker) -> Option<SourceError> {
    let mut backoff = Backoff::new(set.options.retries);
    // The error after which the whole file was requested.
    let mut of_ranges = None;
    loop {
        let Err(mut error) = worker.work(stream) else { return None };
        stream.disconnected();
        let delivered = stream.take_delivered();
        if !worker.restarts() {
            backoff.received(delivered);
        }
        if delivered > Bytes::ZERO {
            of_ranges = None;
        }
        if stream.is_over() {
            return None;
        }
        if error.cause == Cause::Interrupted {
            error = SourceError::stolen(set.source.shown());
        }
        if error.retry == Retry::AtOnce {
            if error.cause == Cause::OtherFile {
                set.transfer.stop.sleep(DISAGREEMENT_WAIT.mul_f64(0.5 + fastrand::f64()));
            }
            continue;
        }
        if set.leaves_refused(stream.id(), &error, delivered > Bytes::ZERO) {
            return None;
        }
        let wait = match error.retry {
            Retry::Never => None,
            Retry::After(wait) => backoff.failed(Some(wait), fastrand::f64()),
            Retry::Backoff | Retry::AtOnce => backoff.failed(None, fastrand::f64()),
        };
        // A stream or source that gets bytes shows that the server, or another one, does not fail at ranges.
        let is_alone = !set.serves_another(stream.id()) && !set.transfer.has_other_source(set.index);
        if is_alone && error.may_be_of_ranges() && worker.falls_back(wait.is_none()) {
            tracing::info!("{error}: the whole file is requested instead of ranges");
            set.keep_only(stream.id());
            of_ranges = Some(error);
            continue;
        }
        // A server that answers everything wrongly is explained by its first answer.
        let Some(wait) = wait else { return Some(of_ranges.unwrap_or(error)) };
        set.transfer.emit(&Event::Retrying { stream: stream.id(), reason: error.to_string(), wait });
        set.transfer.schedule.rest(wait, &set.transfer.stop);
    }
}

/// Leaves the leases to other streams; if none is left, `error` becomes the transfer's error.
fn give_up(set: &StreamSet<'_>, stream: &Stream<'_>, error: SourceError) {
    let transfer = set.transfer;
    // Every stream of this source would receive another file.
    if matches!(error.cause, Cause::OtherFile | Cause::EveryStream) {
        set.progress().set_failed();
        set.drop_source();
    } else if set.report_refusal(stream.id(), &error) {
        transfer.note_given_up(error.into());
        return;
    }
    if transfer.leave_to_others(stream.id()) {
        let lost = Warning::StreamLost { stream: stream.id(), reason: error.to_string() };
        transfer.emit(&Event::Warning(lost));
        transfer.note_given_up(error.into());
        if set.streams().is_empty() {
            set.progress().set_failed();
            set.drop_source();
        }
    } else {
        transfer.fail(error.into());
    }
}
