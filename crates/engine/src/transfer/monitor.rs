//! Watches a running transfer: progress for the observer, facts for the diagnosis.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use longhaul_core::advice::Facts;
use longhaul_core::event::{Event, Snapshot};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::tcp_info::TcpInfo;
use longhaul_sys::{host, sockopt};

use super::shared::Shared;

const TICK: Duration = Duration::from_millis(100);
/// The highest goodput is taken over at least this long; less would be that of a burst.
const OVER: Duration = Duration::from_secs(1);

/// Watches until every stream's end of `alive` is gone.
pub(super) fn watch(shared: &Shared<'_>, resumed: Bytes, size: Option<Bytes>, alive: &Receiver<()>) -> Facts {
    let began = Instant::now();
    let mut facts = Facts { tcp_rmem_max: host::tcp_rmem_max(), ..Facts::default() };
    let (mut since, mut before) = (began, Bytes::ZERO);
    loop {
        let ended = alive.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected);
        let now = snapshot(shared, resumed, size);
        facts.rtt = now.rtt.or(facts.rtt);
        facts.data_rtt = facts.data_rtt.max(now.data_rtt);
        facts.rwin = facts.rwin.max(now.rwin);
        facts.out_of_order = now.out_of_order;
        let window = since.elapsed();
        if window >= OVER || (ended && facts.best == Rate::default()) {
            facts.best = facts.best.max(Rate::over(now.received - before, window));
            (since, before) = (Instant::now(), now.received);
        }
        shared.emit(&Event::Progress(now));
        if ended {
            break;
        }
    }
    facts.flowing = began.elapsed();
    facts.streams = shared.most_streams.load(Ordering::Relaxed).max(1);
    let mean = |total: u64| Duration::from_nanos(total / facts.streams as u64);
    facts.waited_for_writer = mean(shared.waits.writer.load(Ordering::Relaxed));
    facts.waited_for_limit = mean(shared.waits.limit.load(Ordering::Relaxed));
    facts.busiest_thread = Duration::from_nanos(shared.waits.busiest.load(Ordering::Relaxed));
    facts
}

fn snapshot(shared: &Shared<'_>, resumed: Bytes, size: Option<Bytes>) -> Snapshot {
    let received = Bytes::new(shared.received.load(Ordering::Relaxed));
    let present = resumed + received;
    let mut now = Snapshot {
        present: size.map_or(present, |size| present.min(size)),
        received,
        written: shared.checkpoint.written() - resumed,
        size,
        buffered: shared.pool.in_use(),
        out_of_order: shared.closed_out_of_order.load(Ordering::Relaxed),
        ..Snapshot::default()
    };
    let (mut rtts, mut data_rtts) = (Vec::new(), Vec::new());
    shared.each_socket(|socket| {
        now.streams += 1;
        now.unread += sockopt::unread(socket).unwrap_or_default();
        let Ok(info) = TcpInfo::read(socket) else { return };
        rtts.extend(info.rtt());
        data_rtts.extend(info.rcv_rtt());
        now.rwin = info.rcv_wnd().map(|wnd| now.rwin.unwrap_or_default() + wnd).or(now.rwin);
        now.out_of_order += info.rcv_ooopack().unwrap_or(0);
    });
    (now.rtt, now.data_rtt) = (mean(&rtts), mean(&data_rtts));
    now
}

fn mean(times: &[Duration]) -> Option<Rtt> {
    let count = u32::try_from(times.len()).ok().filter(|count| *count > 0)?;
    Some(Rtt::new(times.iter().sum::<Duration>() / count))
}
