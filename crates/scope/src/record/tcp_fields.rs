//! The fields of TCP_INFO that a reader keeps.

use serde::Deserialize;

/// The kept fields, by the kernel's names: all that figures need.
///
/// A field that is missing is zero, as one that has counted nothing, and figures leave out what is
/// zero throughout. A repeated field, and a value that is no number of 64 bits, damage the line of
/// the record.
///
/// A complete TCP_INFO takes 284 bytes per connection and sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct TcpFields {
    /// Bytes that the peer has acknowledged.
    pub tcpi_bytes_acked: u64,
    /// Bytes received in order.
    pub tcpi_bytes_received: u64,
    /// The size of received segments, in bytes.
    pub tcpi_rcv_mss: u64,
}

#[cfg(test)]
mod tests {
    use longhaul_core::tcp_info::{SIZE, TcpInfo};

    use super::*;

    #[test]
    fn keeps_few_of_the_fields_that_were_written() {
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let written = TcpInfo::from_bytes(&bytes);
        let read: TcpFields = serde_json::from_str(&serde_json::to_string(&written).unwrap()).unwrap();
        let kept = [read.tcpi_bytes_acked, read.tcpi_bytes_received, read.tcpi_rcv_mss];
        for (name, kept) in ["tcpi_bytes_acked", "tcpi_bytes_received", "tcpi_rcv_mss"].into_iter().zip(kept)
        {
            assert!(kept > 0 && written.fields().any(|field| field == (name, kept)), "{name}: {kept}");
        }
        let fields = |text: &str| serde_json::from_str::<TcpFields>(text);
        assert_eq!(fields(r#"{"tcpi_rtt":5,"tcpi_later":7}"#).unwrap(), TcpFields::default());
        for damaged in [
            r#"{"tcpi_rcv_mss":"2"}"#,
            r#"{"tcpi_rcv_mss":-2}"#,
            r#"{"tcpi_rcv_mss":18446744073709551616}"#,
            r#"{"tcpi_rcv_mss":2,"tcpi_rcv_mss":2}"#,
            "[{}]",
        ] {
            assert!(fields(damaged).is_err(), "{damaged}");
        }
    }
}
