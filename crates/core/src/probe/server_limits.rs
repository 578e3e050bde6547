//! What a server does to its connections: a bounded send buffer, a bounded rate for each, a bounded rate for all.

use std::time::Duration;

use serde::Serialize;

use crate::units::{Bytes, Rate, Rtt};

/// Rates of one connection beside several, and what the receiver allowed.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionRates {
    /// Round-trip time.
    pub rtt: Rtt,
    /// The rate of a single connection, once steady.
    pub one: Rate,
    /// Whether it had stopped growing.
    pub is_flat: bool,
    /// How many connections there were in the comparison.
    pub connections: u32,
    /// Their rate together.
    pub several: Rate,
    /// The largest window that this host announced on the single connection.
    pub window: Option<Bytes>,
    /// The path's rate for payload, where other evidence has it.
    pub path: Option<Rate>,
    /// Whether packets of the single connection arrived out of order, as they do after a loss.
    pub had_losses: bool,
}

/// The limit that the connections show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ServerLimit {
    /// A fixed amount in flight on each connection: the server's send buffer.
    SendBuffer {
        /// What was in flight: rate x RTT.
        in_flight: Bytes,
    },
    /// A fixed rate for each connection.
    PerConnection {
        /// The rate.
        rate: Rate,
    },
    /// This host's receive window.
    ReceiveWindow {
        /// The largest window.
        window: Bytes,
    },
    /// Loss holds each connection down; several hold more.
    Loss,
    /// One connection reaches what several reach: the path, or a limit that all connections share.
    Shared,
    /// The connections were still growing when the measurement ended.
    Growing,
    /// The ceiling of the measurement endpoint, which clients share: transfers are not bound by it.
    Ceiling {
        /// What it allows this client.
        rate: Rate,
    },
}

/// Several connections are faster than one where they reach this many times its rate.
const FASTER: f64 = 1.3;
/// One connection fills the path from this share of its rate on.
const FILLS: f64 = 0.85;
/// The receive window is used up from this share of it in flight on.
const WINDOW_USED: f64 = 0.8;
/// No send buffer is smaller: less in flight is a rate. Linux starts a connection with 16 KiB (`tcp_wmem[1]`) and lets it grow.
const SMALLEST_BUFFER: Bytes = Bytes::kib(64);
/// On a shorter path a send buffer hardly ever limits.
const LONG_RTT: Duration = Duration::from_millis(2);

/// Finds what limits the connections; what the numbers cannot tell apart goes to the more frequent cause.
pub fn find_limit(rates: &ConnectionRates) -> ServerLimit {
    let bits = |rate: Rate| rate.as_bits_per_sec() as f64;
    let is_full = rates.path.is_some_and(|path| bits(rates.one) >= bits(path) * FILLS);
    if is_full || bits(rates.several) < bits(rates.one) * FASTER {
        return ServerLimit::Shared;
    }
    let in_flight = rates.one.bdp(rates.rtt);
    if let Some(window) = rates.window
        && in_flight.get() as f64 >= window.get() as f64 * WINDOW_USED
    {
        return ServerLimit::ReceiveWindow { window };
    }
    if rates.had_losses {
        return ServerLimit::Loss;
    }
    if !rates.is_flat {
        return ServerLimit::Growing;
    }
    if in_flight < SMALLEST_BUFFER || rates.rtt.get() < LONG_RTT {
        return ServerLimit::PerConnection { rate: rates.one };
    }
    ServerLimit::SendBuffer { in_flight }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rtt_ms: u64, one: u64, several: u64) -> ConnectionRates {
        let mbit = |n: u64| Rate::bits_per_sec(n * 1_000_000);
        ConnectionRates {
            rtt: Rtt::new(Duration::from_millis(rtt_ms)),
            one: mbit(one),
            is_flat: true,
            connections: 4,
            several: mbit(several),
            window: Some(Bytes::mib(64)),
            path: None,
            had_losses: false,
        }
    }

    #[test]
    fn flat_rate_below_the_window_is_the_servers_send_buffer() {
        let found = find_limit(&rates(100, 320, 1200));
        assert_eq!(found, ServerLimit::SendBuffer { in_flight: Bytes::new(4_000_000) });
    }

    #[test]
    fn rate_that_no_buffer_explains_is_shaping() {
        let shaped = |rtt, rate| find_limit(&rates(rtt, rate, rate * 4));
        assert_eq!(shaped(1, 50), ServerLimit::PerConnection { rate: Rate::bits_per_sec(50_000_000) });
        assert_eq!(shaped(50, 8), ServerLimit::PerConnection { rate: Rate::bits_per_sec(8_000_000) });
    }

    #[test]
    fn other_causes_come_before_the_server() {
        assert_eq!(find_limit(&rates(100, 900, 950)), ServerLimit::Shared);
        let path = Some(Rate::bits_per_sec(350_000_000));
        assert_eq!(find_limit(&ConnectionRates { path, ..rates(100, 320, 500) }), ServerLimit::Shared);
        let window = Some(Bytes::mib(4));
        assert_eq!(
            find_limit(&ConnectionRates { window, ..rates(100, 320, 1200) }),
            ServerLimit::ReceiveWindow { window: Bytes::mib(4) }
        );
        let lossy = ConnectionRates { had_losses: true, ..rates(100, 100, 400) };
        assert_eq!(find_limit(&lossy), ServerLimit::Loss);
        let growing = ConnectionRates { is_flat: false, ..rates(100, 100, 400) };
        assert_eq!(find_limit(&growing), ServerLimit::Growing);
    }
}
