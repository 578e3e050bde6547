//! Detects a server's limits: the send buffer, the rate of each connection, the rate of all
//! connections.

use std::time::Duration;

use serde::Serialize;

use crate::buffer_plan::{STOCK_TCP_WMEM_MAX, send_buffer_in_flight};
use crate::units::{Bytes, Rate};

use super::flow_rate::payload_rate;
use super::report::ProbeReport;

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
    /// A send buffer of an unusual size, or a fixed rate for each connection: the measurements fit
    /// both.
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
    /// One connection is as fast as several: the limit is the path, or one that all connections
    /// share.
    Shared,
    /// One connection is as fast as several, and the path carries far more: a limit that all
    /// connections share.
    AllConnections {
        /// The higher rate of one connection and of several.
        rate: Rate,
    },
    /// The rates were still growing at the end of the measurement.
    Growing,
    /// The ceiling of the measurement endpoint, shared by its clients; transfers are not limited by
    /// it.
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
/// The smallest send buffer; fewer bytes in flight show a rate limit. Linux starts with 16 KiB
/// (`tcp_wmem[1]`) and lets it grow.
const SMALLEST_BUFFER: Bytes = Bytes::kib(64);
/// The shortest RTT at which a send buffer counts as a limit.
const LONG_RTT: Duration = Duration::from_millis(2);

/// Finds the limit of the connections by the rows of one and of several connections in `report`;
/// `None` if one of the two is missing. `window` is the largest window that this host advertised on
/// the single connection.
pub fn find_limit(report: &ProbeReport, window: Option<Bytes>) -> Option<ServerLimit> {
    let plain = || report.tcp.iter().filter(|row| row.is_plain());
    let (one, several) = (plain().find(|row| row.streams == 1)?, plain().find(|row| row.streams > 1)?);
    let (rate, rtt) = (one.payload_bps, report.min_rtt().unwrap_or_default());
    let bits = |rate: Rate| rate.as_bits_per_sec() as f64;
    // A lower bound of the path's rate may be the very limit to identify.
    let path = report.path.rate.filter(|found| !found.is_lower_bound);
    let path = path.map(|found| payload_rate(found.rate_bps, report.mtu()));
    if path.is_some_and(|path| bits(rate) >= bits(path) * FILLS) {
        return Some(ServerLimit::Shared);
    }
    if bits(several.payload_bps) < bits(rate) * FASTER {
        let rate = rate.max(several.payload_bps);
        let has_room = path.is_some_and(|path| bits(path) >= bits(rate) * ROOM);
        return Some(match one.is_flat && several.is_flat {
            _ if !has_room => ServerLimit::Shared,
            true => ServerLimit::AllConnections { rate },
            false => ServerLimit::Growing,
        });
    }
    let in_flight = rate.bdp(rtt);
    if let Some(window) = window
        && in_flight.get() as f64 >= window.get() as f64 * WINDOW_USED
    {
        return Some(ServerLimit::ReceiveWindow { window });
    }
    if one.out_of_order > 0 {
        return Some(ServerLimit::Loss);
    }
    if !one.is_flat {
        return Some(ServerLimit::Growing);
    }
    if in_flight < SMALLEST_BUFFER || rtt.get() < LONG_RTT {
        return Some(ServerLimit::PerConnection { rate });
    }
    // The bytes in flight cannot exceed a full buffer, but the RTT may have grown meanwhile.
    let tcp_wmem_max = report.server.tcp_wmem_max;
    let (least, most) = send_buffer_in_flight(tcp_wmem_max.unwrap_or(STOCK_TCP_WMEM_MAX));
    Some(match tcp_wmem_max {
        Some(_) if (least..=most * 2).contains(&in_flight) => ServerLimit::SendBuffer { in_flight },
        Some(_) => ServerLimit::PerConnection { rate },
        None if (least..=most).contains(&in_flight) => ServerLimit::SendBuffer { in_flight },
        None => ServerLimit::SendBufferOrRate { in_flight, rate },
    })
}

#[cfg(test)]
mod tests {
    use super::super::flow_rate::ip_rate;
    use super::super::report::{MeasuredRate, RateEvidence, TcpRow};
    use super::super::rtt::{RttMethod, RttSummary};
    use super::*;

    /// One connection, and four, at these rates.
    fn rates(rtt_ms: u64, one: u64, several: u64) -> ProbeReport {
        let row = |(streams, mbit)| TcpRow {
            streams,
            payload_bps: Rate::mbit(mbit),
            is_flat: true,
            ..TcpRow::default()
        };
        let rtt = RttSummary::of(RttMethod::Icmp, &[Duration::from_millis(rtt_ms)], 1);
        let tcp = [(1, one), (4, several)].map(row).into();
        ProbeReport { rtt: rtt.into_iter().collect(), tcp, ..ProbeReport::default() }
    }

    fn limit(mut report: ProbeReport, change: impl FnOnce(&mut ProbeReport)) -> ServerLimit {
        change(&mut report);
        find_limit(&report, Some(Bytes::mib(64))).unwrap()
    }

    /// Sets the payload rate that the path carries.
    fn set_path(report: &mut ProbeReport, mbit: u64) {
        let rate = ip_rate(Rate::mbit(mbit), report.mtu());
        report.path.rate = Some(MeasuredRate::new(rate, RateEvidence::UdpTrains, false));
    }

    #[test]
    fn flat_rate_is_a_usual_buffer_or_shaping() {
        let shaped = |rate| ServerLimit::PerConnection { rate: Rate::mbit(rate) };
        let buffer = ServerLimit::SendBuffer { in_flight: Bytes::new(4_000_000) };
        assert_eq!(limit(rates(100, 320, 1200), |_| ()), buffer);
        assert_eq!(limit(rates(1, 50, 200), |_| ()), shaped(50));
        assert_eq!(limit(rates(50, 8, 32), |_| ()), shaped(8));
        // 250 kB fit no usual buffer.
        let (rate, in_flight) = (Rate::mbit(40), Bytes::new(250_000));
        let unusual = || rates(50, 40, 160);
        assert_eq!(limit(unusual(), |_| ()), ServerLimit::SendBufferOrRate { in_flight, rate });
        for (size, expected) in [
            (Bytes::mib(4), shaped(40)),
            (Bytes::kib(256), ServerLimit::SendBuffer { in_flight }),
            (Bytes::kib(64), shaped(40)),
            (Bytes::new(u64::MAX), shaped(40)),
        ] {
            let found = limit(unusual(), |report| report.server.tcp_wmem_max = Some(size));
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn other_causes_take_precedence_over_the_server_and_the_path_over_all_connections() {
        let window = Bytes::mib(4);
        let small_window = find_limit(&rates(100, 320, 1200), Some(window));
        assert_eq!(small_window, Some(ServerLimit::ReceiveWindow { window }));
        assert_eq!(limit(rates(100, 900, 950), |_| ()), ServerLimit::Shared);
        assert_eq!(limit(rates(100, 320, 500), |report| set_path(report, 350)), ServerLimit::Shared);
        let lossy = limit(rates(100, 100, 400), |report| report.tcp[0].out_of_order = 1);
        assert_eq!(lossy, ServerLimit::Loss);
        let growing = limit(rates(100, 100, 400), |report| report.tcp[0].is_flat = false);
        assert_eq!(growing, ServerLimit::Growing);
        let mut together = rates(20, 100, 110);
        assert_eq!(limit(together.clone(), |_| ()), ServerLimit::Shared);
        set_path(&mut together, 900);
        let all = ServerLimit::AllConnections { rate: Rate::mbit(110) };
        assert_eq!(limit(together.clone(), |_| ()), all);
        let growing = limit(together.clone(), |report| report.tcp[1].is_flat = false);
        assert_eq!(growing, ServerLimit::Growing);
        together.tcp.pop();
        assert_eq!(find_limit(&together, None), None, "several connections were not measured");
    }
}
