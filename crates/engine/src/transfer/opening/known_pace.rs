//! What a server is asked for that has paced an earlier transfer: the rate of then.

use longhaul_core::pace::{PACE_HEADER, Pace, PaceRequest};
use longhaul_core::proto::http::HeaderField;
use longhaul_core::tune::pace::HeldRate;
use longhaul_core::units::{Rate, Rtt};

use super::{Answer, handshake_rtt};
use crate::path_memory::KnownPath;
use crate::source::http::{ClientConfig, HttpError};
use crate::transfer::buffer;
use crate::transfer::memory::Memory;
use crate::transfer::request::{GetRequest, Streams};

/// A path whose server has paced, before it is known to be the same.
pub(super) struct KnownPace {
    path: KnownPath,
    known: HeldRate,
}

impl KnownPace {
    /// Recalls it where the server is to pace one stream as it likes.
    ///
    /// That is what one stream held: several would each ask for all of it.
    pub(super) fn of(request: &GetRequest, memory: &Memory) -> Option<Self> {
        let is_said = request.client.headers.iter().any(|header| header.is(PACE_HEADER));
        let alone = matches!(request.streams, Streams::Auto | Streams::Fixed(1));
        if request.pace != Pace::Auto || !alone || is_said {
            return None;
        }
        let path = memory.recall(&request.url)?.clone();
        Some(Self { known: path.pace()?, path })
    }

    /// Returns the rate that is asked for.
    pub(super) fn rate(&self) -> Rate {
        self.known.rate
    }

    /// Returns how to ask for it: with a window that is open from the first round trip on.
    ///
    /// The server looks whether the RTT is still the same.
    pub(super) fn config(&self, request: &GetRequest) -> Result<ClientConfig, HttpError> {
        let header = PaceRequest { pace: request.pace, known: Some(self.known) }.header();
        let mut config = request.client.clone();
        config.headers.push(HeaderField::new(PACE_HEADER, &header)?);
        // A window that is to pace cannot have been offered before.
        if request.window_pace().is_none() {
            config.recv_buffer = config.recv_buffer.or_else(|| buffer::open_at_once(self.known));
        }
        Ok(config)
    }

    /// Returns whether the server paces still, at the end of a path that may be the same.
    pub(super) fn is_borne_out_by(&self, answer: &Answer) -> bool {
        self.holds(answer.remote.paces, handshake_rtt(&answer.opened.connection))
    }

    fn holds(&self, paces: bool, rtt: Option<Rtt>) -> bool {
        paces && rtt.is_none_or(|rtt| self.known.may_hold_at(rtt))
    }

    /// Returns what to keep where it does not hold, so that the next transfer is not misled too.
    pub(super) fn corrected(self) -> KnownPath {
        self.path.not_paced()
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
    fn another_server_or_another_rtt_is_another_path() {
        let endpoint = Endpoint::of(&"http://h/".parse().unwrap()).unwrap();
        let found = Remembered { rtt: MS(100), rate: Rate::bits_per_sec(1_000_000_000), streams: 1 };
        let path = KnownPath::new(endpoint, found, Bytes::mib(64), Bytes::mib(20)).paced();
        let known = KnownPace { known: path.pace().unwrap(), path };
        let cases = [(true, Some(MS(130))), (true, None), (true, Some(MS(300))), (false, Some(MS(100)))];
        assert_eq!(cases.map(|(paces, rtt)| known.holds(paces, rtt)), [true, true, false, false]);
        assert_eq!(known.corrected().pace(), None);
    }
}
