//! A second first connection, where the first one's receive buffer is too small for the path.

use longhaul_core::pace::Pace;
use longhaul_core::proto::http::RangeAnswer;

use super::{Answer, FIRST_BLOCK, LONG_RTT, Opener, handshake_rtt};
use crate::source::http::{Client, ClientConfig};
use crate::transfer::error::TransferError;
use crate::transfer::request::Streams;
use crate::transfer::{buffer, edge};

/// How many streams share a path at least where nobody has said how many there will be.
const SHARED_BY: usize = 8;

impl Opener<'_> {
    /// Connects anew with a larger receive buffer where the kernel's autotuning cannot reach what the path needs.
    ///
    /// The RTT is known only now, and the window's scale is fixed by the SYN. Where the second try
    /// fails, as with a URL that works once, the first connection goes on. Where the number of streams is free,
    /// it goes on too, and those that may come have the larger buffer: so no time is lost.
    pub(super) fn with_larger_buffer(
        &self,
        client: Client,
        answer: Answer,
    ) -> Result<(Client, Answer), TransferError> {
        let small = answer.remote.size.is_some_and(|size| size < FIRST_BLOCK);
        let connection = &answer.opened.connection;
        let (Some(rtt), None, false) = (handshake_rtt(connection), self.request.client.recv_buffer, small)
        else {
            return Ok((client, answer));
        };
        let whole = matches!(answer.held, RangeAnswer::Whole { .. });
        let (streams, free) = match self.request.streams {
            _ if whole => (1, false),
            Streams::Fixed(streams) => (streams, false),
            // As `tuning::choose` says: this stream is to have it all.
            Streams::Auto if answer.remote.paces && self.request.pace != Pace::Off => (1, false),
            Streams::Auto if rtt < LONG_RTT => (1, false),
            Streams::Auto | Streams::Apt(_) => (SHARED_BY, true),
        };
        let Some(buffer) = buffer::larger_than_kernels(rtt, streams) else {
            return Ok((client, answer));
        };
        let raised = || {
            let config = ClientConfig { recv_buffer: Some(buffer), ..self.request.client.clone() };
            Client::new(config)
        };
        if free {
            return Ok((raised()?, answer));
        }
        // A buffer that is set offers all of its window at once, and an offered window cannot be taken back.
        if streams == 1 && self.request.pace_window && edge::is_possible(&answer.remote, connection) {
            return Ok((client, answer));
        }
        let raised = raised()?;
        // Once only: the first connection does not wait for ever.
        let better = raised.open(&self.request.url, answer.opened.asked.as_ref(), self.cancel);
        Ok(match better.map_err(TransferError::from).and_then(Answer::new) {
            Ok(better)
                if better.held == answer.held
                    && answer.remote.is_same(&better.opened.head, answer.remote.if_range().is_some()) =>
            {
                (raised, better)
            }
            _ => (client, answer),
        })
    }
}
