//! The settings of the first connection: by the stored path, and then by the path that the
//! connection has shown.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::pace::{PACE_HEADER, Pace, PaceRequest};
use longhaul_core::proto::http::{HeaderField, RangeAnswer};
use longhaul_core::tune::pace::HeldRate;
use longhaul_core::units::{Bytes, Rtt};

use crate::cancel::Cancel;
use crate::source::MIN_RTT_OF_SEVERAL;
use crate::source::http::client::Client;
use crate::source::http::client::config::ClientConfig;
use crate::source::http::error::HttpError;
use crate::source::http::http_source::HttpSource;
use crate::source::http::http_source::first_answer::{FIRST_BLOCK, FirstAnswer, handshake_rtt};
use crate::source::http::http_source::remote_file::Agreement;
use crate::transfer::{Streams, recv_buffer};

/// The minimum number of streams that share a path if their number is free.
pub(crate) const SHARED_BY: usize = 8;

impl HttpSource<'_> {
    /// Returns the stored rate of a server that paced an earlier transfer, before the path is known
    /// to be unchanged, if the server may choose the pace of a single stream.
    ///
    /// The rate is that of one stream; several streams would each request all of it.
    pub(super) fn known_pace(&self) -> Option<HeldRate> {
        let options = &self.options.transfer;
        let is_said = options.client.requests.headers.iter().any(|header| header.is(PACE_HEADER));
        let alone = matches!(options.streams, Streams::Auto | Streams::Fixed(1));
        if options.pace != Pace::Auto || !alone || is_said {
            return None;
        }
        self.recall(&self.url)?.pace()
    }

    /// Returns the client of the first request. It requests the stored rate, if any, with a window
    /// that is open from the first round trip on; the server compares the RTT with the stored one.
    pub(super) fn first_client(&self, known: Option<HeldRate>) -> Result<Arc<Client>, HttpError> {
        let mut config = self.options.transfer.client.clone();
        if let Some(known) = known {
            let header = PaceRequest { pace: Pace::Auto, known: Some(known) }.header();
            config.requests.headers.push(HeaderField::new(PACE_HEADER, &header)?);
            config.recv_buffer = config.recv_buffer.or_else(|| recv_buffer::open_at_once(known));
        }
        self.clients.get(&config)
    }

    /// Connects again if autotuning cannot reach the buffer that the path needs, or if the first
    /// connection was `misled`: it requested a pace that no longer applies.
    ///
    /// The RTT is known only now, and the SYN fixes the window scale. If the second attempt fails,
    /// as with a URL that works once, the first connection continues. If the number of streams is
    /// free, a first connection that was not misled also continues, and further streams get the
    /// larger buffer, so that no time is lost.
    pub(super) fn refit(
        &self,
        client: Arc<Client>,
        answer: FirstAnswer,
        misled: bool,
        cancel: &Cancel,
    ) -> Result<(Arc<Client>, FirstAnswer), Failure> {
        let config = &self.options.transfer.client;
        // All of a small file is already in flight.
        let small = answer.file.size.is_some_and(|size| size < FIRST_BLOCK);
        let larger = if small || config.recv_buffer.is_some() { None } else { self.larger_buffer(&answer) };
        if larger.is_none() && !misled {
            return Ok((client, answer));
        }
        let for_others = larger.is_some_and(|(_, for_others)| for_others);
        let recv_buffer = config.recv_buffer.or(larger.map(|(size, _)| size));
        let fitting = self.clients.get(&ClientConfig { recv_buffer, ..config.clone() })?;
        if small || (for_others && !misled) {
            return Ok((fitting, answer));
        }
        // Without retries, because the first connection must not wait.
        let requested = answer.opened.requested.as_ref();
        let with_if_range = requested.is_some_and(|requested| requested.if_range().is_some());
        let second = fitting.open(&self.url, requested, cancel).map_err(Failure::from);
        let second = second.and_then(|opened| self.first_answer(&fitting, opened));
        let agrees = |second: &FirstAnswer| {
            second.held == answer.held
                && answer.file.agreement(&second.opened.head, second.held, with_if_range)
                    != Agreement::OtherFile
        };
        // Later streams use the fitting client in either case.
        Ok((fitting, second.ok().filter(agrees).unwrap_or(answer)))
    }

    /// Returns the receive buffer that the path needs and autotuning cannot reach, and whether only
    /// further connections need it.
    fn larger_buffer(&self, answer: &FirstAnswer) -> Option<(Bytes, bool)> {
        let rtt = handshake_rtt(&answer.opened.connection)?;
        let whole = matches!(answer.held, RangeAnswer::Whole { .. });
        // The rate of a server that paces is that of one stream; a second stream would arrive in a
        // burst.
        let is_paced = answer.file.pace.is_some() && self.options.transfer.pace != Pace::Off;
        let (streams, for_others) = match self.options.transfer.streams {
            _ if whole => (1, false),
            Streams::Fixed(streams) => (streams, false),
            Streams::Auto if is_paced || rtt < MIN_RTT_OF_SEVERAL => (1, false),
            Streams::Auto | Streams::Apt(_) => (SHARED_BY, true),
        };
        Some((recv_buffer::larger_than_kernels(rtt, streams)?, for_others))
    }
}

/// Returns whether a server that `paces` now may still do so at the stored rate, given the RTT of
/// the path.
pub(super) fn holds(known: HeldRate, paces: bool, rtt: Option<Rtt>) -> bool {
    paces && rtt.is_none_or(|rtt| known.may_hold_at(rtt))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::tune::streams::Remembered;
    use longhaul_core::units::Rate;

    use super::*;
    use crate::path_memory::{Endpoint, KnownPath};

    const MS: fn(u64) -> Rtt = |ms| Rtt::new(Duration::from_millis(ms));

    #[test]
    fn other_server_or_rtt_is_another_path() {
        let endpoint = Endpoint::of(&"http://h/".parse().unwrap()).unwrap();
        let found = Remembered { rtt: MS(100), rate: Rate::bits_per_sec(1_000_000_000), streams: 1 };
        let path = KnownPath::new(endpoint, found, Bytes::mib(64), Bytes::mib(20)).paced();
        let known = path.pace().unwrap();
        let cases = [(true, Some(MS(130))), (true, None), (true, Some(MS(300))), (false, Some(MS(100)))];
        assert_eq!(cases.map(|(paces, rtt)| holds(known, paces, rtt)), [true, true, false, false]);
    }
}
