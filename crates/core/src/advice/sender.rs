//! What held back a transfer that we sent: the kernel counts for us what its peer and its buffer did.

use std::time::Duration;

use super::{Finding, LONG_RTT, LimitedBy, MOST, RAMP_UP_RTTS};
use crate::units::{Bytes, Rate, Rtt};

/// What a finished transfer showed of itself to its sender.
#[derive(Debug, Clone, Copy, Default)]
pub struct SenderFacts {
    /// How long bytes were flowing: from the first to the last.
    pub flowing: Duration,
    /// The highest goodput over a second.
    pub best: Rate,
    /// Time the sender stood still for want of bytes from the disk.
    pub waited_for_disk: Duration,
    /// Time the sender stood still to keep to `--limit`.
    pub waited_for_limit: Duration,
    /// CPU time of the sending thread.
    pub sending_thread: Duration,
    /// Round-trip time.
    pub rtt: Option<Rtt>,
    /// The least round-trip time.
    pub min_rtt: Option<Rtt>,
    /// Time with bytes to send (`tcpi_busy_time`).
    pub busy: Duration,
    /// Of that: held back by the peer's window (`tcpi_rwnd_limited`).
    pub window_limited: Duration,
    /// Of that: held back by the send buffer (`tcpi_sndbuf_limited`).
    pub buffer_limited: Duration,
    /// How far the kernel may raise a send buffer (`tcp_wmem[2]`).
    pub tcp_wmem_max: Option<Bytes>,
    /// Segments sent again.
    pub retransmits: u64,
}

/// Finds what held back a transfer that we sent.
pub fn diagnose_sender(facts: &SenderFacts) -> Finding {
    let of = |part: Duration, whole: Duration| part.as_secs_f64() / whole.as_secs_f64().max(1e-9);
    let percent = |share: f64| (share.min(1.0) * 100.0).round();
    let found = |limit, advice: Vec<String>| Finding { limit, advice };
    let limit = of(facts.waited_for_limit, facts.flowing);
    if limit > MOST {
        return found(
            LimitedBy::Limit,
            vec![format!("--limit held the sender for {} % of the time", percent(limit))],
        );
    }
    let disk = of(facts.waited_for_disk, facts.flowing);
    if disk > MOST {
        return found(
            LimitedBy::Disk,
            vec![format!(
                "the sender waited for the disk for {} % of the time: the source is slower than the network",
                percent(disk)
            )],
        );
    }
    if of(facts.sending_thread, facts.flowing) > 0.9 {
        return found(LimitedBy::Cpu, vec!["the sending thread used all of a core".into()]);
    }
    let window = of(facts.window_limited, facts.busy);
    if window > MOST {
        return found(
            LimitedBy::ReceiveWindow,
            vec![
                format!("the server's receive window was closed for {} % of the time", percent(window)),
                "its disk is slower than the network, or its net.ipv4.tcp_rmem too small for the path".into(),
            ],
        );
    }
    let buffer = of(facts.buffer_limited, facts.busy);
    if buffer > MOST {
        let most = facts.tcp_wmem_max.map_or_else(String::new, |max| format!(" of at most {max}"));
        return found(
            LimitedBy::SendBuffer,
            vec![
                format!("this host's send buffer{most} was full for {} % of the time", percent(buffer)),
                "raise it with sysctl net.ipv4.tcp_wmem to twice the rate times the round-trip time".into(),
            ],
        );
    }
    path(facts)
}

/// Tells apart what is left: slow start, loss, or the path itself.
fn path(facts: &SenderFacts) -> Finding {
    let long = facts.min_rtt.or(facts.rtt).filter(|rtt| rtt.get() >= LONG_RTT);
    if let Some(rtt) = long.filter(|rtt| facts.flowing <= rtt.get() * RAMP_UP_RTTS) {
        let advice = format!(
            "{:.1} s are only {:.0} round trips: TCP was still speeding up",
            facts.flowing.as_secs_f64(),
            facts.flowing.as_secs_f64() / rtt.get().as_secs_f64()
        );
        return Finding { limit: LimitedBy::RampUp, advice: vec![advice] };
    }
    if long.is_some() && facts.retransmits > 0 {
        let advice = format!(
            "{} segments were sent again: the path drops; --pace RATE below its rate, or --congestion bbr, may help",
            facts.retransmits
        );
        return Finding { limit: LimitedBy::Loss, advice: vec![advice] };
    }
    Finding { limit: LimitedBy::Path, advice: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_told_by_its_evidence() {
        let flowing = SenderFacts {
            flowing: Duration::from_secs(20),
            busy: Duration::from_secs(20),
            min_rtt: Some(Rtt::new(Duration::from_millis(200))),
            ..SenderFacts::default()
        };
        let most = Duration::from_secs(19);
        let limit = |facts: SenderFacts| diagnose_sender(&facts).limit;
        assert_eq!(limit(SenderFacts { waited_for_limit: most, ..flowing }), LimitedBy::Limit);
        assert_eq!(limit(SenderFacts { waited_for_disk: most, ..flowing }), LimitedBy::Disk);
        assert_eq!(limit(SenderFacts { sending_thread: most, ..flowing }), LimitedBy::Cpu);
        assert_eq!(limit(SenderFacts { window_limited: most, ..flowing }), LimitedBy::ReceiveWindow);
        assert_eq!(limit(SenderFacts { buffer_limited: most, ..flowing }), LimitedBy::SendBuffer);
        assert_eq!(limit(SenderFacts { retransmits: 9, ..flowing }), LimitedBy::Loss);
        assert_eq!(limit(SenderFacts { flowing: Duration::from_secs(2), ..flowing }), LimitedBy::RampUp);
        assert_eq!(limit(flowing), LimitedBy::Path);
        assert_eq!(limit(SenderFacts::default()), LimitedBy::Path);
    }
}
