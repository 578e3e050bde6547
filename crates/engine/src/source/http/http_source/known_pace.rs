//! Requests the stored rate from a server that paced an earlier transfer.

use longhaul_core::pace::{PACE_HEADER, Pace, PaceRequest};
use longhaul_core::proto::http::HeaderField;
use longhaul_core::tune::pace::HeldRate;
use longhaul_core::units::{Rate, Rtt};

use crate::path_memory::KnownPath;
use crate::source::http::client::config::ClientConfig;
use crate::source::http::error::HttpError;
use crate::source::http::http_source::SourceOptions;
use crate::source::http::http_source::first_answer::{FirstAnswer, handshake_rtt};
use crate::transfer::{Streams, recv_buffer};

/// The stored rate of a path whose server paces, before the path is known to be unchanged.
pub(crate) struct KnownPace {
    known: HeldRate,
    pace: Pace,
}

impl KnownPace {
    /// Returns the stored rate if the server may choose the pace of a single stream.
    ///
    /// The rate is that of one stream; several streams would each request all of it.
    pub(crate) fn of(options: &SourceOptions, path: Option<&KnownPath>) -> Option<Self> {
        let is_said = options.client.requests.headers.iter().any(|header| header.is(PACE_HEADER));
        let alone = matches!(options.streams, Streams::Auto | Streams::Fixed(1));
        if options.pace != Pace::Auto || !alone || is_said {
            return None;
        }
        Some(Self { known: path?.pace()?, pace: options.pace })
    }

    /// Returns the requested rate.
    pub(crate) fn rate(&self) -> Rate {
        self.known.rate
    }

    /// Returns client settings that request the rate, with a window that is open from the first round trip on.
    ///
    /// The server compares the RTT with the stored one.
    pub(crate) fn config(&self, client: &ClientConfig) -> Result<ClientConfig, HttpError> {
        let header = PaceRequest { pace: self.pace, known: Some(self.known) }.header();
        let mut config = client.clone();
        config.requests.headers.push(HeaderField::new(PACE_HEADER, &header)?);
        config.recv_buffer = config.recv_buffer.or_else(|| recv_buffer::open_at_once(self.known));
        Ok(config)
    }

    /// Returns whether the server still paces, and the path may be unchanged.
    pub(crate) fn is_confirmed_by(&self, answer: &FirstAnswer) -> bool {
        self.holds(answer.file.pace.is_some(), handshake_rtt(&answer.opened.connection))
    }

    fn holds(&self, paced: bool, rtt: Option<Rtt>) -> bool {
        paced && rtt.is_none_or(|rtt| self.known.may_hold_at(rtt))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::tune::streams::Remembered;
    use longhaul_core::units::Bytes;

    use super::*;
    use crate::path_memory::Endpoint;

    const MS: fn(u64) -> Rtt = |ms| Rtt::new(Duration::from_millis(ms));

    #[test]
    fn other_server_or_rtt_is_another_path() {
        let endpoint = Endpoint::of(&"http://h/".parse().unwrap()).unwrap();
        let found = Remembered { rtt: MS(100), rate: Rate::bits_per_sec(1_000_000_000), streams: 1 };
        let path = KnownPath::new(endpoint, found, Bytes::mib(64), Bytes::mib(20)).paced();
        let known = KnownPace { known: path.pace().unwrap(), pace: Pace::Auto };
        let cases = [(true, Some(MS(130))), (true, None), (true, Some(MS(300))), (false, Some(MS(100)))];
        assert_eq!(cases.map(|(paces, rtt)| known.holds(paces, rtt)), [true, true, false, false]);
    }
}
