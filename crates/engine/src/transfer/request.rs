//! What a transfer is asked to do, and what it did.

use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::advice::Finding;
use longhaul_core::pace::Pace;
use longhaul_core::units::{Bytes, Rate};
use url::Url;

use super::remote::Remote;
use crate::sink::memory_budget::AppBuffer;
use crate::sink::output::Output;
use crate::sink::writer::WriterChoice;
use crate::source::http::ClientConfig;
use longhaul_core::checksum::Checksum;

/// How many connections to use, where the server answers ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Streams {
    /// So many.
    Fixed(usize),
    /// As many as pay, by [`StreamTuner`](longhaul_core::tune::streams::StreamTuner).
    Auto,
    /// What GridFTP-APT finds.
    Apt(AptSettings),
}

/// What GridFTP-APT can be told, by the names of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AptSettings {
    /// The number of streams to begin with (N0).
    pub n0: usize,
    /// By how much it is multiplied while a bracket is looked for.
    pub alpha: f64,
    /// How long a chunk should take (Delta).
    pub delta: Duration,
}

/// A file to fetch.
#[derive(Debug, Clone)]
pub struct GetRequest {
    /// Where it is.
    pub url: Url,
    /// Where it goes.
    pub target: Output,
    /// How many connections to use, where the server answers ranges.
    pub streams: Streams,
    /// The file in which to remember paths; `None` remembers none.
    pub memory: Option<PathBuf>,
    /// The application buffer.
    pub app_buffer: AppBuffer,
    /// The size of its segments, a power of two; `None` lets the transfer choose.
    pub segment: Option<Bytes>,
    /// How often to emit [`Event::Sample`](longhaul_core::event::Event::Sample); `None` is never.
    pub sample: Option<Duration>,
    /// Whether to count the output file's pages for [`Event::Progress`](longhaul_core::event::Event::Progress)
    /// too: for samples they are counted anyway.
    pub count_pages: bool,
    /// The writer.
    pub writer: WriterChoice,
    /// What the file's digest must be.
    pub checksum: Option<Checksum>,
    /// How the server is to be paced.
    pub pace: Pace,
    /// Whether to pace a server that does not pace itself, through the receive window of one stream, where this process may
    /// (CAP_NET_ADMIN) and the connection can. Not with [`Pace::Off`], nor with a receive buffer that is set.
    pub pace_window: bool,
    /// The highest rate at which to read.
    pub limit: Option<Rate>,
    /// Whether to go on from what an earlier run left.
    pub resume: bool,
    /// How many failures in a row a stream may have.
    pub retries: u32,
    /// How long a stream may bring next to nothing before it is taken for dead.
    pub stall: Duration,
    /// How to talk to the server. `recv_buffer: None` lets the transfer choose.
    pub client: ClientConfig,
}

impl GetRequest {
    /// Returns how to pace through the receive window a server that does not pace itself; `None` where that is not asked for,
    /// or the user has set the buffer that the window comes from.
    pub(super) fn window_pace(&self) -> Option<Pace> {
        let asked = self.pace_window && self.client.recv_buffer.is_none();
        asked.then_some(self.pace).filter(|pace| *pace != Pace::Off)
    }

    /// Returns whether one stream is to have it all, where their number is free: the server paces what it sends.
    ///
    /// What that has found is what one stream holds; a second would come in a burst.
    pub(super) fn leaves_pace_to(&self, remote: &Remote) -> bool {
        remote.paces && self.pace != Pace::Off
    }
}

/// A file that is complete and verified.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Where it stands.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
    /// How much of it an earlier run had left.
    pub resumed: Bytes,
    /// How long this run took, from the first look-up to the final name.
    pub time: Duration,
    /// What this run fetched over how long it took.
    pub goodput: Rate,
    /// How many connections it ended with; where their number was given, the most that were open at once.
    pub streams: usize,
    /// Packets that arrived out of order, a receiver's sign of loss.
    pub out_of_order: u64,
    /// The file's digest, where a checksum was asked for.
    pub digest: Option<Checksum>,
    /// What held the transfer back.
    pub finding: Finding,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_paces_where_it_is_asked_to_and_may() {
        let request = |pace, pace_window, recv_buffer| GetRequest {
            url: "http://h/f".parse().unwrap(),
            target: Output::File("f".into()),
            streams: Streams::Auto,
            memory: None,
            app_buffer: AppBuffer::Auto,
            segment: None,
            sample: None,
            count_pages: false,
            writer: WriterChoice::Auto,
            checksum: None,
            pace,
            pace_window,
            limit: None,
            resume: true,
            retries: 0,
            stall: Duration::from_secs(1),
            client: ClientConfig { recv_buffer, ..ClientConfig::default() },
        };
        let rate = Pace::Rate(Rate::bits_per_sec(1_000_000));
        for (pace, pace_window, recv_buffer, found) in [
            (Pace::Auto, true, None, Some(Pace::Auto)),
            (rate, true, None, Some(rate)),
            (Pace::Off, true, None, None),
            (Pace::Auto, false, None, None),
            (Pace::Auto, true, Some(Bytes::mib(1)), None),
        ] {
            let request = request(pace, pace_window, recv_buffer);
            assert_eq!(request.window_pace(), found, "{pace} {pace_window} {recv_buffer:?}");
        }
    }
}
