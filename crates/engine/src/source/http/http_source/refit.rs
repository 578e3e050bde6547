//! Replaces the first connection if its settings do not fit the path that it has shown.

use std::sync::Arc;

use longhaul_core::failure::Failure;
use longhaul_core::proto::http::RangeAnswer;
use longhaul_core::units::Bytes;
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::client::clients::Clients;
use crate::source::http::client::config::ClientConfig;
use crate::source::http::client::{Client, OpenedUrl};
use crate::source::http::http_source::SourceOptions;
use crate::source::http::http_source::first_answer::{FIRST_BLOCK, FirstAnswer, LONG_RTT, handshake_rtt};
use crate::source::http::http_source::remote_file::Agreement;
use crate::transfer::{Streams, recv_buffer};

/// The minimum number of streams that share a path if their number is free.
pub(crate) const SHARED_BY: usize = 8;

/// The receive buffer that a path needs and autotuning cannot reach.
struct LargerBuffer {
    size: Bytes,
    /// Whether only further connections need the buffer.
    for_others: bool,
}

/// The parameters of a new first connection.
pub(crate) struct Refit<'a> {
    pub(crate) options: &'a SourceOptions,
    pub(crate) url: &'a Url,
    pub(crate) clients: &'a Clients,
}

impl Refit<'_> {
    /// Connects again if autotuning cannot reach the buffer that the path needs, or if the first connection was
    /// `misled`: it requested a pace that no longer applies.
    ///
    /// The RTT is known only now, and the SYN fixes the window scale. If the second attempt fails, as with a URL that
    /// works once, the first connection continues. If the number of streams is free, a first connection that was not
    /// misled also continues, and further streams get the larger buffer, so that no time is lost.
    pub(crate) fn with_what_fits(
        &self,
        client: Arc<Client>,
        answer: FirstAnswer,
        misled: bool,
        cancel: &Cancel,
        describe: &dyn Fn(&Client, OpenedUrl) -> Result<FirstAnswer, Failure>,
    ) -> Result<(Arc<Client>, FirstAnswer), Failure> {
        let config = &self.options.client;
        // All of a small file is already in flight.
        let small = answer.file.size.is_some_and(|size| size < FIRST_BLOCK);
        let larger = if small || config.recv_buffer.is_some() { None } else { self.larger_buffer(&answer) };
        if larger.is_none() && !misled {
            return Ok((client, answer));
        }
        let for_others = larger.as_ref().is_some_and(|larger| larger.for_others);
        let recv_buffer = config.recv_buffer.or(larger.map(|larger| larger.size));
        let fitting = self.clients.get(&ClientConfig { recv_buffer, ..config.clone() })?;
        if small || (for_others && !misled) {
            return Ok((fitting, answer));
        }
        // Without retries, because the first connection must not wait.
        let requested = answer.opened.requested.as_ref();
        let with_if_range = requested.is_some_and(|requested| requested.if_range().is_some());
        let second = fitting.open(self.url, requested, cancel).map_err(Failure::from);
        let second = second.and_then(|opened| describe(&fitting, opened));
        let agrees = |second: &FirstAnswer| {
            second.held == answer.held
                && answer.file.agreement(&second.opened.head, second.held, with_if_range)
                    != Agreement::OtherFile
        };
        // Later streams use the fitting client in either case.
        Ok((fitting, second.ok().filter(agrees).unwrap_or(answer)))
    }

    fn larger_buffer(&self, answer: &FirstAnswer) -> Option<LargerBuffer> {
        let rtt = handshake_rtt(&answer.opened.connection)?;
        let whole = matches!(answer.held, RangeAnswer::Whole { .. });
        let (streams, for_others) = match self.options.streams {
            _ if whole => (1, false),
            Streams::Fixed(streams) => (streams, false),
            Streams::Auto if self.options.leaves_pace_to(&answer.file) => (1, false),
            Streams::Auto if rtt < LONG_RTT => (1, false),
            Streams::Auto | Streams::Apt(_) => (SHARED_BY, true),
        };
        Some(LargerBuffer { size: recv_buffer::larger_than_kernels(rtt, streams)?, for_others })
    }
}
