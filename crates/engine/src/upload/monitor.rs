//! Monitors an upload: emits progress, and finds the limit.

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::advice::{End, Finding, KnownLimits, SenderPace};
use longhaul_core::event::Event;
use longhaul_core::telemetry::Sample;

use super::known_path::UploadPath;
use super::progress::UploadProgress;
use super::request::PutRequest;
use crate::limit_watch::{CHECK_INTERVAL, LimitWatch};
use crate::rate_limit::is_of_pace;
use crate::sampling::SampleInterval;
use crate::telemetry;

/// Monitors the upload until the sender of `alive` is dropped; returns the limit.
pub(super) fn watch(
    request: &PutRequest,
    progress: &UploadProgress<'_>,
    path: &UploadPath,
    alive: &Receiver<()>,
) -> Finding {
    let mut limits = LimitWatch::new(End::Sender, request.transfer.pace.rate().map(SenderPace::Shared));
    let emit = |event: &Event| progress.emit(event);
    let mut rtt = None;
    loop {
        let ended = alive.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Disconnected);
        let (now, _) = progress.snapshot();
        rtt = now.sockets.times.min_rtt.or(rtt);
        let transfer = &progress.transfer;
        let busiest = transfer.cpu.take_busiest();
        limits.observe(transfer.start.elapsed(), &now, &transfer.waits, busiest, emit);
        progress.emit(&Event::Progress(Box::new((&now).into())));
        if ended {
            break;
        }
    }
    limits.pause(emit);
    limits.finding(KnownLimits {
        path_rate: rtt.and_then(|rtt| path.remembered(rtt)).map(|known| known.rate),
        limit_is_pace: is_of_pace(request.transfer.limit.as_ref(), request.transfer.pace),
        ..KnownLimits::default()
    })
}

/// Takes a sample every `interval` until the sender of `alive` is dropped, and then a last one.
pub(super) fn sample(progress: &UploadProgress<'_>, interval: &SampleInterval, alive: &Receiver<()>) {
    let take = |_last| {
        let began = progress.transfer.start.elapsed();
        let (now, streams) = progress.snapshot();
        Some(Sample {
            took: Some(progress.transfer.start.elapsed().saturating_sub(began)),
            moved: now.received,
            sockets: now.sockets,
            streams,
            segments: progress.ring(),
            ..Sample::default()
        })
    };
    telemetry::sample(interval, alive, take, |event| progress.emit(event));
}
