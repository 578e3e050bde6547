//! The kernel's state of a TCP connection: `struct tcp_info`, with the kernel's field names.
//!
//! New kernel releases append fields to the structure. A reading therefore stores the bytes from
//! the kernel and their number, and a field is present only if the kernel wrote all of it.

use std::time::Duration;

use serde::ser::{Serialize, Serializer};

use crate::units::{Bytes, Rate, Rtt};

/// One reading of TCP_INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpInfo {
    bytes: [u8; SIZE],
    filled: usize,
}

/// The size in bytes of the supported part of the structure.
pub const SIZE: usize = 276;

/// The position of a field in the structure.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: &'static str,
    offset: usize,
    size: usize,
    /// Shift and width of a bit field, in bits. The layout is that of little-endian machines
    /// (x86-64, aarch64).
    bits: Option<(u32, u32)>,
}

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident: $type:ident @ $offset:literal $([$shift:literal, $width:literal])?,)*) => {
        const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            offset: $offset,
            size: size_of::<$type>(),
            bits: layout!(@bits $($shift, $width)?),
        },)*];

        impl TcpInfo {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> Option<u64> {
                    self.value(&Field {
                        name: stringify!($name),
                        offset: $offset,
                        size: size_of::<$type>(),
                        bits: layout!(@bits $($shift, $width)?),
                    })
                }
            )*
        }
    };
    (@bits) => { None };
    (@bits $shift:literal, $width:literal) => { Some(($shift, $width)) };
}

// `struct tcp_info` of Linux 6.18, from its UAPI header linux/tcp.h. The next four bytes (accurate
// ECN's state) are omitted, because their layout has changed since.
layout! {
    /// State of the connection (1 is ESTABLISHED).
    tcpi_state: u8 @ 0,
    /// State of congestion avoidance: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    tcpi_ca_state: u8 @ 1,
    /// Consecutive retransmission timeouts without an acknowledgement.
    tcpi_retransmits: u8 @ 2,
    /// Window probes without an acknowledgement.
    tcpi_probes: u8 @ 3,
    /// Doublings of the retransmission timeout.
    tcpi_backoff: u8 @ 4,
    /// Negotiated options, as bits: 1 timestamps, 2 SACK, 4 window scale, 8 ECN.
    tcpi_options: u8 @ 5,
    /// Window scale of the peer.
    tcpi_snd_wscale: u8 @ 6 [0, 4],
    /// Window scale sent to the peer.
    tcpi_rcv_wscale: u8 @ 6 [4, 4],
    /// Whether the application limited the delivery rate.
    tcpi_delivery_rate_app_limited: u8 @ 7 [0, 1],
    /// Reason why TCP Fast Open failed at the client.
    tcpi_fastopen_client_fail: u8 @ 7 [1, 2],
    /// Retransmission timeout, in microseconds.
    tcpi_rto: u32 @ 8,
    /// Delay of acknowledgements, in microseconds.
    tcpi_ato: u32 @ 12,
    /// Segment size towards the peer, in bytes.
    tcpi_snd_mss: u32 @ 16,
    /// Segment size from the peer, in bytes.
    tcpi_rcv_mss: u32 @ 20,
    /// Segments in flight.
    tcpi_unacked: u32 @ 24,
    /// Segments selectively acknowledged.
    tcpi_sacked: u32 @ 28,
    /// Segments considered lost.
    tcpi_lost: u32 @ 32,
    /// Retransmitted segments in flight.
    tcpi_retrans: u32 @ 36,
    /// Unused since Linux 4.15.
    tcpi_fackets: u32 @ 40,
    /// Milliseconds since data was sent.
    tcpi_last_data_sent: u32 @ 44,
    /// Unused by the kernel.
    tcpi_last_ack_sent: u32 @ 48,
    /// Milliseconds since data was received.
    tcpi_last_data_recv: u32 @ 52,
    /// Milliseconds since an acknowledgement was received.
    tcpi_last_ack_recv: u32 @ 56,
    /// Path MTU, in bytes.
    tcpi_pmtu: u32 @ 60,
    /// The present upper bound of the advertised window, in bytes.
    tcpi_rcv_ssthresh: u32 @ 64,
    /// Smoothed round-trip time, in microseconds.
    tcpi_rtt: u32 @ 68,
    /// Mean deviation of the round-trip time, in microseconds.
    tcpi_rttvar: u32 @ 72,
    /// Slow-start threshold, in segments.
    tcpi_snd_ssthresh: u32 @ 76,
    /// Congestion window, in segments.
    tcpi_snd_cwnd: u32 @ 80,
    /// Segment size advertised to the peer, in bytes.
    tcpi_advmss: u32 @ 84,
    /// Reordering considered normal, in segments.
    tcpi_reordering: u32 @ 88,
    /// The receiver's estimate of the round-trip time, including queueing of the data, in
    /// microseconds.
    tcpi_rcv_rtt: u32 @ 92,
    /// Target of receive autotuning, in bytes.
    tcpi_rcv_space: u32 @ 96,
    /// Segments retransmitted so far.
    tcpi_total_retrans: u32 @ 100,
    /// Pacing rate, in bytes per second.
    tcpi_pacing_rate: u64 @ 104,
    /// Limit of the pacing rate, in bytes per second; all bits set for none.
    tcpi_max_pacing_rate: u64 @ 112,
    /// Bytes acknowledged by the peer.
    tcpi_bytes_acked: u64 @ 120,
    /// Bytes received in order.
    tcpi_bytes_received: u64 @ 128,
    /// Segments sent.
    tcpi_segs_out: u32 @ 136,
    /// Segments received.
    tcpi_segs_in: u32 @ 140,
    /// Bytes written to the socket but not yet sent.
    tcpi_notsent_bytes: u32 @ 144,
    /// Least round-trip time, in microseconds.
    tcpi_min_rtt: u32 @ 148,
    /// Segments with data received.
    tcpi_data_segs_in: u32 @ 152,
    /// Segments with data sent.
    tcpi_data_segs_out: u32 @ 156,
    /// Latest measured delivery rate to the peer, in bytes per second.
    tcpi_delivery_rate: u64 @ 160,
    /// Time with data to send, in microseconds.
    tcpi_busy_time: u64 @ 168,
    /// Part of `tcpi_busy_time` limited by the peer's window, in microseconds.
    tcpi_rwnd_limited: u64 @ 176,
    /// Part of `tcpi_busy_time` limited by the send buffer, in microseconds.
    tcpi_sndbuf_limited: u64 @ 184,
    /// Segments delivered to the peer.
    tcpi_delivered: u32 @ 192,
    /// Segments delivered to the peer with a congestion mark.
    tcpi_delivered_ce: u32 @ 196,
    /// Bytes of data sent, including retransmissions.
    tcpi_bytes_sent: u64 @ 200,
    /// Bytes of data retransmitted.
    tcpi_bytes_retrans: u64 @ 208,
    /// Duplicate segments reported by the peer.
    tcpi_dsack_dups: u32 @ 216,
    /// Number of reordering events.
    tcpi_reord_seen: u32 @ 220,
    /// Segments received out of order.
    tcpi_rcv_ooopack: u32 @ 224,
    /// Window advertised by the peer, in bytes.
    tcpi_snd_wnd: u32 @ 228,
    /// Window advertised to the peer, in bytes.
    tcpi_rcv_wnd: u32 @ 232,
    /// Number of attempts to use another path.
    tcpi_rehash: u32 @ 236,
    /// Retransmission timeouts.
    tcpi_total_rto: u16 @ 240,
    /// Recoveries from retransmission timeouts.
    tcpi_total_rto_recoveries: u16 @ 242,
    /// Milliseconds in recovery from retransmission timeouts.
    tcpi_total_rto_time: u32 @ 244,
    /// Segments received with a congestion mark.
    tcpi_received_ce: u32 @ 248,
    /// Bytes delivered with ECT(1).
    tcpi_delivered_e1_bytes: u32 @ 252,
    /// Bytes delivered with ECT(0).
    tcpi_delivered_e0_bytes: u32 @ 256,
    /// Bytes delivered with a congestion mark.
    tcpi_delivered_ce_bytes: u32 @ 260,
    /// Bytes received with ECT(1).
    tcpi_received_e1_bytes: u32 @ 264,
    /// Bytes received with ECT(0).
    tcpi_received_e0_bytes: u32 @ 268,
    /// Bytes received with a congestion mark.
    tcpi_received_ce_bytes: u32 @ 272,
}

impl TcpInfo {
    /// Creates a reading from the kernel's bytes, which may be fewer (older kernel) or more (newer
    /// kernel) than `SIZE`.
    pub fn from_bytes(given: &[u8]) -> Self {
        let filled = given.len().min(SIZE);
        let mut bytes = [0; SIZE];
        bytes[..filled].copy_from_slice(&given[..filled]);
        Self { bytes, filled }
    }

    /// Returns every field that the kernel wrote, with its name, in the order of the structure.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FIELDS.iter().filter_map(|field| Some((field.name, self.value(field)?)))
    }

    fn value(&self, field: &Field) -> Option<u64> {
        let end = field.offset + field.size;
        if end > self.filled {
            return None;
        }
        let mut value = [0; 8];
        value[..field.size].copy_from_slice(&self.bytes[field.offset..end]);
        let value = u64::from_le_bytes(value);
        Some(match field.bits {
            Some((shift, width)) => (value >> shift) & ((1 << width) - 1),
            None => value,
        })
    }

    /// Smoothed round-trip time (`tcpi_rtt`); `None` before the first measurement.
    pub fn rtt(&self) -> Option<Rtt> {
        microseconds(self.tcpi_rtt())
    }

    /// The receiver's estimate of the round-trip time, including queueing of the data
    /// (`tcpi_rcv_rtt`); `None` without timestamps, where it is the time in which a window of data
    /// arrives, however slow the sender is.
    pub fn rcv_rtt(&self) -> Option<Rtt> {
        const TIMESTAMPS: u64 = 1;
        let has_timestamps = self.tcpi_options().is_some_and(|options| options & TIMESTAMPS != 0);
        microseconds(self.tcpi_rcv_rtt().filter(|_| has_timestamps))
    }

    /// Least round-trip time (`tcpi_min_rtt`); `None` before the first measurement, when all bits
    /// are set.
    pub fn min_rtt(&self) -> Option<Rtt> {
        microseconds(self.tcpi_min_rtt().filter(|us| *us != u64::from(u32::MAX)))
    }

    /// The receive window last advertised: RWIN (`tcpi_rcv_wnd`, Linux 6.2).
    ///
    /// A segment's window field has 16 bits, shifted by the scale in the SYN (RFC 7323, section
    /// 2.2). The kernel reports the window that it would advertise without this limit.
    pub fn rcv_wnd(&self) -> Option<Bytes> {
        let largest = 65_535 << self.tcpi_rcv_wscale()?;
        self.tcpi_rcv_wnd().map(|window| Bytes::new(window.min(largest)))
    }

    /// The congestion window: `tcpi_snd_cwnd` segments of `tcpi_snd_mss` bytes.
    pub fn cwnd(&self) -> Option<Bytes> {
        Some(Bytes::new(self.tcpi_snd_cwnd()? * self.tcpi_snd_mss()?))
    }

    /// The pacing rate (`tcpi_pacing_rate`); `None` without pacing.
    pub fn pacing_rate(&self) -> Option<Rate> {
        self.tcpi_pacing_rate().filter(|rate| *rate != u64::MAX && *rate > 0).map(Rate::bytes_per_sec)
    }

    /// The latest measured delivery rate to the peer (`tcpi_delivery_rate`); `None` before the
    /// first.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.tcpi_delivery_rate().filter(|rate| *rate > 0).map(Rate::bytes_per_sec)
    }

    /// The bytes acknowledged by the peer's kernel so far (`tcpi_bytes_acked`, Linux 4.1).
    ///
    /// The value never decreases, so two readings distinguish a slow peer from a stalled one.
    pub fn bytes_acked(&self) -> Option<Bytes> {
        self.tcpi_bytes_acked().map(Bytes::new)
    }
}

/// Serialises every field that the kernel wrote, with its name and in its unit.
impl Serialize for TcpInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.fields())
    }
}

fn microseconds(value: Option<u64>) -> Option<Rtt> {
    value.filter(|us| *us > 0).map(|us| Rtt::new(Duration::from_micros(us)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in which the value of each field differs.
    fn kernel(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn layout_has_no_hole_and_older_kernels_give_fewer_fields() {
        let mut next = 0;
        for field in FIELDS {
            let continues = field.bits.is_some_and(|(shift, _)| shift > 0);
            assert_eq!(field.offset, if continues { next - 1 } else { next }, "{}", field.name);
            assert_eq!(field.offset % field.size, 0, "{}", field.name);
            next = field.offset + field.size;
        }
        assert_eq!(next, SIZE);
        // Linux 2.6: 104 bytes, the last field is tcpi_total_retrans.
        let old = TcpInfo::from_bytes(&kernel(104));
        assert_eq!(old.fields().last().map(|(name, _)| name), Some("tcpi_total_retrans"));
        assert!(old.tcpi_rtt().is_some() && old.rcv_wnd().is_none() && old.bytes_acked().is_none());
        assert_eq!(TcpInfo::from_bytes(&kernel(103)).tcpi_total_retrans(), None);
        assert_eq!(TcpInfo::from_bytes(&[]).fields().count(), 0);
        // A newer one changes no supported field.
        let (known, newer) = (TcpInfo::from_bytes(&kernel(SIZE)), TcpInfo::from_bytes(&kernel(SIZE + 200)));
        assert_eq!(known, newer);
        assert_eq!(newer.fields().count(), FIELDS.len());
    }

    #[test]
    fn values_bit_fields_and_scaled_windows_are_read() {
        let mut bytes = vec![0; SIZE];
        bytes[6] = 0xe7;
        bytes[7] = 0b101;
        bytes[68..72].copy_from_slice(&200_000u32.to_le_bytes());
        bytes[104..112].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[148..152].copy_from_slice(&u32::MAX.to_le_bytes());
        let info = TcpInfo::from_bytes(&bytes);
        assert_eq!((info.tcpi_snd_wscale(), info.tcpi_rcv_wscale()), (Some(7), Some(14)));
        let bits = (info.tcpi_delivery_rate_app_limited(), info.tcpi_fastopen_client_fail());
        assert_eq!(bits, (Some(1), Some(2)));
        assert_eq!(info.rtt(), Some(Rtt::new(Duration::from_millis(200))));
        assert_eq!((info.rcv_rtt(), info.min_rtt(), info.pacing_rate()), (None, None, None));
        // Without timestamps it is no RTT.
        bytes[92..96].copy_from_slice(&7000u32.to_le_bytes());
        let mut rcv_rtt = |options| {
            bytes[5] = options;
            TcpInfo::from_bytes(&bytes).rcv_rtt()
        };
        assert_eq!((rcv_rtt(6), rcv_rtt(7)), (None, Some(Rtt::new(Duration::from_millis(7)))));
        let window = |scale: u8| {
            let mut bytes = vec![0; SIZE];
            bytes[6] = scale << 4;
            bytes[232..236].copy_from_slice(&41_800_000u32.to_le_bytes());
            TcpInfo::from_bytes(&bytes).rcv_wnd().unwrap().get()
        };
        assert_eq!((window(9), window(10)), (33_553_920, 41_800_000));
    }

    #[test]
    fn reading_is_serialised_by_the_kernels_names() {
        let text = serde_json::to_string(&TcpInfo::from_bytes(&kernel(SIZE))).unwrap();
        assert!(text.starts_with(r#"{"tcpi_state":0,"tcpi_ca_state":1,"#), "{text}");
    }
}
