//! A second first connection, where the first one does not fit the path that it has shown.

use longhaul_core::proto::http::RangeAnswer;
use longhaul_core::units::Bytes;

use super::{Answer, FIRST_BLOCK, LONG_RTT, Opener, handshake_rtt};
use crate::source::http::{Client, ClientConfig};
use crate::transfer::error::TransferError;
use crate::transfer::request::Streams;
use crate::transfer::{buffer, edge};

/// How many streams share a path at least where nobody has said how many there will be.
const SHARED_BY: usize = 8;

/// The receive buffer that a path needs and autotuning cannot reach.
struct Larger {
    buffer: Bytes,
    /// Whether the first connection can do without: others may come that have it.
    for_others: bool,
}

impl Opener<'_> {
    /// Connects anew where the kernel's autotuning cannot reach what the path needs, or where the first connection was
    /// `misled`: asked for what a path held that is another by now.
    ///
    /// The RTT is known only now, and the window's scale is fixed by the SYN. Where the second try fails, as with a URL that
    /// works once, the first connection goes on. Where the number of streams is free, one that was not misled goes on too, and
    /// those that may come have the larger buffer: so no time is lost.
    pub(super) fn with_what_fits(
        &self,
        client: Client,
        answer: Answer,
        misled: bool,
    ) -> Result<(Client, Answer), TransferError> {
        let config = self.config()?;
        // All of it is on its way already.
        let small = answer.remote.size.is_some_and(|size| size < FIRST_BLOCK);
        let larger = if small || config.recv_buffer.is_some() { None } else { self.larger_buffer(&answer) };
        if larger.is_none() && !misled {
            return Ok((client, answer));
        }
        let for_others = larger.as_ref().is_some_and(|larger| larger.for_others);
        let recv_buffer = config.recv_buffer.or(larger.map(|larger| larger.buffer));
        let fitting = Client::new(ClientConfig { recv_buffer, ..config })?;
        if small || (for_others && !misled) {
            return Ok((fitting, answer));
        }
        // Once only: the first connection does not wait for ever.
        let asked = answer.opened.asked.as_ref();
        let if_same = asked.is_some_and(|asked| asked.if_range().is_some());
        let second = fitting.open(&self.request.url, asked, self.cancel);
        Ok(match second.map_err(TransferError::from).and_then(Answer::new) {
            Ok(second)
                if second.held == answer.held && answer.remote.is_same(&second.opened.head, if_same) =>
            {
                (fitting, second)
            }
            // Whoever comes later is better off with what fits all the same.
            _ => (fitting, answer),
        })
    }

    fn larger_buffer(&self, answer: &Answer) -> Option<Larger> {
        let connection = &answer.opened.connection;
        let rtt = handshake_rtt(connection)?;
        let whole = matches!(answer.held, RangeAnswer::Whole { .. });
        let (streams, for_others) = match self.request.streams {
            _ if whole => (1, false),
            Streams::Fixed(streams) => (streams, false),
            Streams::Auto if self.request.leaves_pace_to(&answer.remote) => (1, false),
            Streams::Auto if rtt < LONG_RTT => (1, false),
            Streams::Auto | Streams::Apt(_) => (SHARED_BY, true),
        };
        // A buffer that is set offers all of its window at once, and an offered window cannot be taken back.
        if streams == 1 && edge::is_for(self.request, &answer.remote, connection) {
            return None;
        }
        Some(Larger { buffer: buffer::larger_than_kernels(rtt, streams)?, for_others })
    }
}
