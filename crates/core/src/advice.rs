//! From what a transfer showed to what held it back, and which knob to turn.

mod sender;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::window_ceiling;
use crate::units::{Bytes, Rate, Rtt};

pub use sender::{SenderFacts, diagnose_sender};

/// What a finished transfer showed of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// How long bytes were flowing: from the first to the last.
    pub flowing: Duration,
    /// The highest goodput over a second: what was reached once ramped up.
    pub best: Rate,
    /// Time the streams stood still for want of a free segment, mean over the streams.
    pub waited_for_writer: Duration,
    /// Time the streams stood still to keep to `--limit`, mean over the streams.
    pub waited_for_limit: Duration,
    /// CPU time of the busiest receiving thread.
    pub busiest_thread: Duration,
    /// Round-trip time.
    pub rtt: Option<Rtt>,
    /// Round-trip time as the data saw it, queueing on the path included.
    pub data_rtt: Option<Rtt>,
    /// The largest receive window seen, summed over the streams.
    pub rwin: Option<Bytes>,
    /// How far the kernel may raise a receive buffer (`tcp_rmem[2]`).
    pub tcp_rmem_max: Option<Bytes>,
    /// Packets that arrived out of order.
    pub out_of_order: u64,
    /// Streams used.
    pub streams: usize,
}

/// What held a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitedBy {
    /// The ceiling the user set.
    Limit,
    /// The output: the application buffer was full.
    Disk,
    /// One core was busy throughout.
    Cpu,
    /// The receiver's window: goodput is RWIN/RTT.
    ReceiveWindow,
    /// This host's send buffer.
    SendBuffer,
    /// A fixed amount in flight, far below the window, without loss: the server's send buffer.
    ServerSendBuffer,
    /// Loss on the path.
    Loss,
    /// Slow start: over before the path was full.
    RampUp,
    /// None of these: the path itself, or how fast the server reads.
    #[default]
    Path,
}

impl LimitedBy {
    /// Returns the name, which is also the serialised one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Disk => "disk",
            Self::Cpu => "cpu",
            Self::ReceiveWindow => "receive-window",
            Self::SendBuffer => "send-buffer",
            Self::ServerSendBuffer => "server-send-buffer",
            Self::Loss => "loss",
            Self::RampUp => "ramp-up",
            Self::Path => "path",
        }
    }
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What was found: the limit, the evidence for it and the knob to turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What held the transfer back.
    pub limit: LimitedBy,
    /// Evidence and knob, a sentence each.
    pub advice: Vec<String>,
}

/// A share of the time from which on something is called the limit.
const MOST: f64 = 0.25;
/// Below this RTT a window or a send buffer is hardly ever what limits.
const LONG_RTT: Duration = Duration::from_millis(5);
/// Slow start from 10 packets to 10 Gbit/s at 1448 bytes takes about 14 doublings, a round trip each, and settles in a few more.
const RAMP_UP_RTTS: u32 = 20;
/// What a stock Linux server can have in flight at most (`tcp_wmem[2]` = 4 MiB, less bookkeeping, plus rounding).
const STOCK_SEND_BUFFER: Bytes = Bytes::new(4_500_000);

/// Finds what held a transfer back.
pub fn diagnose(facts: &Facts) -> Finding {
    let share = |time: Duration| time.as_secs_f64() / facts.flowing.as_secs_f64().max(1e-9);
    let percent = |time: Duration| (share(time).min(1.0) * 100.0).round();
    let found = |limit, advice: Vec<String>| Finding { limit, advice };
    if share(facts.waited_for_limit) > MOST {
        return found(
            LimitedBy::Limit,
            vec![format!("--limit held the streams for {} % of the time", percent(facts.waited_for_limit))],
        );
    }
    if share(facts.waited_for_writer) > MOST {
        return found(
            LimitedBy::Disk,
            vec![
                format!(
                    "the application buffer was full for {} % of the time: the output is slower than the network",
                    percent(facts.waited_for_writer)
                ),
                "write to a faster file system, or try another --writer".into(),
            ],
        );
    }
    if share(facts.busiest_thread) > 0.9 {
        return found(
            LimitedBy::Cpu,
            vec![
                format!("a receiving thread used {} % of a core", percent(facts.busiest_thread)),
                "spread the work over cores with --streams 2 or more".into(),
            ],
        );
    }
    window_or_path(facts)
}

/// Tells apart what can only be seen from the amount in flight: goodput x RTT.
fn window_or_path(facts: &Facts) -> Finding {
    let path = Finding { limit: LimitedBy::Path, advice: Vec::new() };
    let Some(rtt) = facts.rtt.filter(|rtt| rtt.get() >= LONG_RTT) else { return path };
    let in_flight = facts.best.bdp(rtt);
    if let Some(rwin) = facts.rwin.filter(|rwin| in_flight.get() * 10 >= rwin.get() * 8) {
        let mut advice = vec![format!(
            "goodput reached {} of at most RWIN/RTT = {rwin} / {rtt} = {}",
            facts.best,
            window_ceiling(rwin, rtt)
        )];
        if let Some(max) = facts.tcp_rmem_max {
            advice.push(format!("the kernel's autotuning may go to {max}: raise it with sysctl net.ipv4.tcp_rmem, or pass --recv-buffer"));
        }
        return Finding { limit: LimitedBy::ReceiveWindow, advice };
    }
    let per_stream = in_flight.get() / facts.streams.max(1) as u64;
    // A full path has a queue, which the data waits in; behind a full send buffer there is none.
    let queued = facts.data_rtt.is_some_and(|data| data.get() > rtt.get().mul_f64(1.1));
    let ramped_up = facts.flowing > rtt.get() * RAMP_UP_RTTS;
    if facts.out_of_order == 0 && !queued && per_stream <= STOCK_SEND_BUFFER.get() && ramped_up {
        return Finding {
            limit: LimitedBy::ServerSendBuffer,
            advice: vec![
                format!(
                    "about {} in flight per stream, no loss and a wide open receive window: the server's send buffer looks full",
                    Bytes::new(per_stream)
                ),
                "use more --streams, or raise net.ipv4.tcp_wmem on the server".into(),
            ],
        };
    }
    if !ramped_up {
        return Finding {
            limit: LimitedBy::RampUp,
            advice: vec![format!(
                "{:.1} s are only {:.0} round trips: TCP was still speeding up",
                facts.flowing.as_secs_f64(),
                facts.flowing.as_secs_f64() / rtt.get().as_secs_f64()
            )],
        };
    }
    if facts.out_of_order > 0 {
        return Finding {
            limit: LimitedBy::Loss,
            advice: vec![format!(
                "{} packets arrived out of order: the path drops or reorders; a paced sender or BBR on the server may help",
                facts.out_of_order
            )],
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowing() -> Facts {
        Facts {
            flowing: Duration::from_secs(20),
            best: Rate::bits_per_sec(9_800_000_000),
            rtt: Some(Rtt::new(Duration::from_millis(200))),
            rwin: Some(Bytes::mib(600)),
            tcp_rmem_max: Some(Bytes::mib(6)),
            streams: 1,
            ..Facts::default()
        }
    }

    fn limit(facts: Facts) -> LimitedBy {
        diagnose(&facts).limit
    }

    #[test]
    fn each_limit_is_told_by_its_evidence() {
        let most = Duration::from_secs(10);
        assert_eq!(limit(Facts { waited_for_limit: most, ..flowing() }), LimitedBy::Limit);
        assert_eq!(limit(Facts { waited_for_writer: most, ..flowing() }), LimitedBy::Disk);
        assert_eq!(limit(Facts { busiest_thread: Duration::from_secs(19), ..flowing() }), LimitedBy::Cpu);
        assert_eq!(limit(Facts { rwin: Some(Bytes::mib(250)), ..flowing() }), LimitedBy::ReceiveWindow);
        assert_eq!(
            limit(Facts { best: Rate::bits_per_sec(110_000_000), ..flowing() }),
            LimitedBy::ServerSendBuffer
        );
        assert_eq!(limit(Facts { out_of_order: 9, ..flowing() }), LimitedBy::Loss);
        assert_eq!(limit(Facts { flowing: Duration::from_secs(2), ..flowing() }), LimitedBy::RampUp);
        assert_eq!(limit(flowing()), LimitedBy::Path);
    }

    #[test]
    fn a_queue_on_the_path_clears_the_server() {
        let slow = Facts { best: Rate::bits_per_sec(110_000_000), ..flowing() };
        let queued = Some(Rtt::new(Duration::from_millis(260)));
        assert_eq!(limit(Facts { data_rtt: queued, ..slow }), LimitedBy::Path);
    }

    #[test]
    fn a_short_path_is_never_called_window_limited() {
        let near = Some(Rtt::new(Duration::from_micros(100)));
        assert_eq!(limit(Facts { rtt: near, rwin: Some(Bytes::new(1)), ..flowing() }), LimitedBy::Path);
    }

    #[test]
    fn an_empty_transfer_is_diagnosed_too() {
        assert_eq!(limit(Facts::default()), LimitedBy::Path);
    }
}
