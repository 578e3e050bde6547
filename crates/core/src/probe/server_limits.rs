//! Detects a server's limits: the send buffer, the rate of each connection, the rate of all connections.

use std::time::Duration;

use serde::Serialize;

use crate::plan::{STOCK_TCP_WMEM_MAX, send_buffer_in_flight};
use crate::units::{Bytes, Rate, Rtt};

/// The rates of one connection and of several, and the receiver's limits.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionRates {
    /// Round-trip time.
    pub rtt: Rtt,
    /// The rate of a single connection, once steady.
    pub one: Rate,
    /// Whether the rate of the single connection had stopped growing.
    pub is_flat: bool,
    /// The number of connections of `several`.
    pub connections: u32,
    /// The total rate of several connections.
    pub several: Rate,
    /// Whether the total rate had stopped growing.
    pub several_are_flat: bool,
    /// The largest window that this host advertised on the single connection.
    pub window: Option<Bytes>,
    /// The largest send buffer of the server's kernel (`tcp_wmem[2]`), if reported.
    pub tcp_wmem_max: Option<Bytes>,
    /// The path's payload rate, if other evidence gives it.
    pub path: Option<Rate>,
    /// Whether packets of the single connection arrived out of order, as after a loss.
    pub had_losses: bool,
}

/// The limit of a server's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum ServerLimit {
    /// A fixed number of bytes in flight on each connection: the server's send buffer.
    SendBuffer {
        /// The bytes in flight: rate x RTT.
        in_flight: Bytes,
    },
    /// A fixed rate for each connection.
    PerConnection {
        /// The rate.
        rate: Rate,
    },
    /// A send buffer of an unusual size, or a fixed rate for each connection: the measurements fit both.
    SendBufferOrRate {
        /// The bytes in flight: rate x RTT.
        in_flight: Bytes,
        /// The rate.
        rate: Rate,
    },
    /// This host's receive window.
    ReceiveWindow {
        /// The largest window.
        window: Bytes,
    },
    /// Losses limit each connection; several are faster than one.
    Loss,
    /// One connection is as fast as several: the limit is the path, or one that all connections share.
    Shared,
    /// One connection is as fast as several, and the path carries far more: a limit that all connections share.
    AllConnections {
        /// The higher rate of one connection and of several.
        rate: Rate,
    },
    /// The rates were still growing at the end of the measurement.
    Growing,
    /// The ceiling of the measurement endpoint, shared by its clients; transfers are not limited by it.
    Ceiling {
        /// The rate that the endpoint allows this client.
        rate: Rate,
    },
}

/// Several connections count as faster than one from this ratio on.
const FASTER: f64 = 1.3;
/// The path carries far more than all connections from this ratio on.
const ROOM: f64 = 2.0;
/// One connection fills the path from this share of its rate on.
const FILLS: f64 = 0.85;
/// The receive window is the limit if this share of it is in flight.
const WINDOW_USED: f64 = 0.8;
/// The smallest send buffer; fewer bytes in flight show a rate limit. Linux starts with 16 KiB (`tcp_wmem[1]`) and lets
/// it grow.
const SMALLEST_BUFFER: Bytes = Bytes::kib(64);
/// The shortest RTT at which a send buffer counts as a limit.
const LONG_RTT: Duration = Duration::from_millis(2);

/// Returns the limit of the connections.
pub fn find_limit(rates: &ConnectionRates) -> ServerLimit {
    let bits = |rate: Rate| rate.as_bits_per_sec() as f64;
    if rates.path.is_some_and(|path| bits(rates.one) >= bits(path) * FILLS) {
        return ServerLimit::Shared;
    }
    if bits(rates.several) < bits(rates.one) * FASTER {
        let rate = rates.one.max(rates.several);
        let has_room = rates.path.is_some_and(|path| bits(path) >= bits(rate) * ROOM);
        return match rates.is_flat && rates.several_are_flat {
            _ if !has_room => ServerLimit::Shared,
            true => ServerLimit::AllConnections { rate },
            false => ServerLimit::Growing,
        };
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
    let rate = rates.one;
    if in_flight < SMALLEST_BUFFER || rates.rtt.get() < LONG_RTT {
        return ServerLimit::PerConnection { rate };
    }
    // The bytes in flight cannot exceed a full buffer, but the RTT may have grown meanwhile.
    let (least, most) = send_buffer_in_flight(rates.tcp_wmem_max.unwrap_or(STOCK_TCP_WMEM_MAX));
    match rates.tcp_wmem_max {
        Some(_) if (least..=most * 2).contains(&in_flight) => ServerLimit::SendBuffer { in_flight },
        Some(_) => ServerLimit::PerConnection { rate },
        None if (least..=most).contains(&in_flight) => ServerLimit::SendBuffer { in_flight },
        None => ServerLimit::SendBufferOrRate { in_flight, rate },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rtt_ms: u64, one: u64, several: u64) -> ConnectionRates {
        ConnectionRates {
            rtt: Rtt::new(Duration::from_millis(rtt_ms)),
            one: Rate::mbit(one),
            is_flat: true,
            connections: 4,
            several: Rate::mbit(several),
            several_are_flat: true,
            window: Some(Bytes::mib(64)),
            tcp_wmem_max: None,
            path: None,
            had_losses: false,
        }
    }

    #[test]
    fn flat_rate_is_a_usual_buffer_or_shaping() {
        let shaped = |rate| ServerLimit::PerConnection { rate: Rate::mbit(rate) };
        let buffer = ServerLimit::SendBuffer { in_flight: Bytes::new(4_000_000) };
        assert_eq!(find_limit(&rates(100, 320, 1200)), buffer);
        assert_eq!(find_limit(&rates(1, 50, 200)), shaped(50));
        assert_eq!(find_limit(&rates(50, 8, 32)), shaped(8));
        // 250 kB fit no usual buffer.
        let unusual = rates(50, 40, 160);
        let (rate, in_flight) = (Rate::mbit(40), Bytes::new(250_000));
        assert_eq!(find_limit(&unusual), ServerLimit::SendBufferOrRate { in_flight, rate });
        for (size, limit) in [
            (Bytes::mib(4), shaped(40)),
            (Bytes::kib(256), ServerLimit::SendBuffer { in_flight }),
            (Bytes::kib(64), shaped(40)),
            (Bytes::new(u64::MAX), shaped(40)),
        ] {
            let known = ConnectionRates { tcp_wmem_max: Some(size), ..unusual };
            assert_eq!(find_limit(&known), limit, "{size}");
        }
    }

    #[test]
    fn other_causes_take_precedence_over_the_server_and_the_path_over_all_connections() {
        let (path, window) = (Some(Rate::mbit(350)), Some(Bytes::mib(4)));
        for (rates, limit) in [
            (rates(100, 900, 950), ServerLimit::Shared),
            (ConnectionRates { path, ..rates(100, 320, 500) }, ServerLimit::Shared),
            (
                ConnectionRates { window, ..rates(100, 320, 1200) },
                ServerLimit::ReceiveWindow { window: Bytes::mib(4) },
            ),
            (ConnectionRates { had_losses: true, ..rates(100, 100, 400) }, ServerLimit::Loss),
            (ConnectionRates { is_flat: false, ..rates(100, 100, 400) }, ServerLimit::Growing),
        ] {
            assert_eq!(find_limit(&rates), limit, "{rates:?}");
        }
        let together = ConnectionRates { path: Some(Rate::mbit(900)), ..rates(20, 100, 110) };
        assert_eq!(find_limit(&together), ServerLimit::AllConnections { rate: Rate::mbit(110) });
        let growing = ConnectionRates { several_are_flat: false, ..together };
        assert_eq!(find_limit(&growing), ServerLimit::Growing);
        assert_eq!(find_limit(&ConnectionRates { path: None, ..together }), ServerLimit::Shared);
    }
}
