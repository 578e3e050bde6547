//! Samples of connections, for receivers and senders alike.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::event::Event;
use longhaul_core::telemetry::{Sample, StreamSample};
use longhaul_sys::{host, sockopt, tcp_info};

use crate::sampling::SampleInterval;

/// Reads TCP_INFO of the connection with the number `stream`.
pub fn read(stream: usize, socket: impl AsFd) -> StreamSample {
    StreamSample {
        stream,
        unread: sockopt::unread(&socket).unwrap_or_default(),
        tcp: tcp_info::read(&socket).ok(),
    }
}

/// Takes a sample every `interval` until the sender of `alive` is dropped, and then a last one.
///
/// Runs on the calling thread, and emits the thread's CPU time at the end. The argument of `take`
/// is whether this is the last sample; if `take` returns `None`, no event is emitted.
pub fn sample(
    interval: &SampleInterval,
    alive: &Receiver<()>,
    mut take: impl FnMut(bool) -> Option<Sample>,
    emit: impl Fn(&Event),
) {
    let cpu = host::thread_cpu_time();
    let (mut due, mut samples, mut ended) = (Instant::now(), 0, false);
    // The CPU time at the last wake-up, and the moving average of the cost of one.
    let (mut spent, mut cost) = (cpu, Duration::ZERO);
    loop {
        if let Some(sample) = take(ended) {
            emit(&Event::Sample(Box::new(sample)));
            samples += 1;
        }
        if ended {
            break;
        }
        // Counted from the previous due time, so that the interval does not drift; missed samples
        // are skipped.
        let so_far = host::thread_cpu_time();
        cost = (cost * 7 + (so_far - std::mem::replace(&mut spent, so_far))) / 8;
        due = (due + interval.after(cost)).max(Instant::now());
        ended = alive.recv_deadline(due) == Err(RecvTimeoutError::Disconnected);
    }
    emit(&Event::Sampled { samples, cpu: host::thread_cpu_time() - cpu });
}

#[cfg(test)]
mod tests {

    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn last_sample_is_taken_at_the_end_and_counted_if_emitted() {
        let (alive, ended) = crossbeam_channel::bounded::<()>(0);
        let (alive, taken) = (Mutex::new(Some(alive)), Mutex::new(Vec::new()));
        let take = |last| {
            let mut taken = taken.lock();
            taken.push(last);
            if taken.len() == 5 {
                alive.lock().take();
            }
            // Every second call returns no sample.
            (taken.len() % 2 == 1).then(Sample::default)
        };
        let emitted = Mutex::new(Vec::new());
        let emit = |event: &Event| emitted.lock().push(event.clone());
        sample(&SampleInterval::new(Duration::from_millis(1)), &ended, take, emit);
        assert_eq!(*taken.lock(), [false, false, false, false, false, true]);
        let emitted = emitted.into_inner();
        let Some((Event::Sampled { samples, .. }, before)) = emitted.split_last() else {
            panic!("{emitted:?}")
        };
        assert_eq!((*samples, before.len()), (3, 3));
    }
}
