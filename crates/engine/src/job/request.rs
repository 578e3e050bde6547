//! What a job is asked to do, and what it did.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use longhaul_core::advice::Finding;
use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::event::Done;
use longhaul_core::identity::Identity;
use longhaul_core::pace::Pace;
use longhaul_core::proto::http::ETag;
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::units::{Bytes, Rate};
use url::Url;

use crate::digest::WantedDigests;
use crate::passing_digest::Verify;
use crate::rate_limit::RateLimit;
use crate::sampling::SampleInterval;
use crate::sink::output::Output;
use crate::sink::writer::WriterChoice;
use crate::source::http::ClientConfig;
use crate::transfer::Streams;

/// A file to fetch.
#[derive(Debug, Clone)]
pub struct Job {
    /// Where the file is. The first URL that can be used describes it; the others are mirrors.
    pub urls: Vec<Url>,
    /// Where it goes.
    pub output: Output,
    /// What is known of the file beforehand.
    pub expected: Expected,
    /// How the bytes get here.
    pub options: JobOptions,
}

/// What a metalink or the user says of a file.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The file's name, where the output is a directory; the server's counts otherwise.
    pub name: Option<String>,
    /// The file's size.
    pub size: Option<Bytes>,
    /// The file's digest.
    pub checksum: Option<Checksum>,
    /// Whether the digest that the server states is demanded, where `checksum` gives none.
    pub by_server: bool,
    /// The algorithm of a digest that the server is asked for once the file is there.
    pub stated_by: Option<Algorithm>,
    /// Its time of modification, where the server does not tell it with the file.
    pub modified: Option<SystemTime>,
    /// The digests of its pieces, which tell which source sent wrong bytes.
    pub pieces: Option<Pieces>,
}

impl Expected {
    /// Returns which digests are to be compared.
    pub(super) fn digests(&self) -> WantedDigests {
        WantedDigests {
            whole: self.checksum.as_ref().map(|checksum| checksum.algorithm).or(self.stated_by),
            pieces: self.pieces.as_ref().map(|pieces| (pieces.algorithm, pieces.length)),
        }
    }
}

/// A file that is there already, from an earlier fetch.
#[derive(Debug, Clone)]
pub struct FileHere {
    /// When it was modified.
    pub modified: SystemTime,
    /// Its entity tag, where its server did not say when it was modified.
    pub tag: Option<ETag>,
}

impl FileHere {
    /// Returns whether the file on the server is not newer: by its time, or else by its entity tag.
    pub(super) fn is_as_new_as(&self, modified: Option<SystemTime>, identity: Option<&Identity>) -> bool {
        match (modified, &self.tag, identity) {
            (Some(there), _, _) => there <= self.modified,
            (None, Some(here), Some(Identity::ETag(there))) => here.matches_strongly(there),
            _ => false,
        }
    }
}

/// How a file is fetched.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// How many connections to use for each source, where the server answers ranges.
    pub streams: Streams,
    /// The file in which to remember paths; `None` remembers none.
    pub memory: Option<PathBuf>,
    /// The size of its segments, a power of two; `None` lets the transfer choose.
    pub segment: Option<Bytes>,
    /// How often to emit [`Event::Sample`](longhaul_core::event::Event::Sample); `None` is never.
    pub sample: Option<SampleInterval>,
    /// Whether to count the output file's pages for [`Event::Progress`](longhaul_core::event::Event::Progress)
    /// too: for samples they are counted anyway.
    pub count_pages: bool,
    /// How a digest is verified.
    pub verify: Verify,
    /// The writer.
    pub writer: WriterChoice,
    /// How the server is to be paced.
    pub pace: Pace,
    /// The highest rate at which to read, shared with other jobs.
    pub limit: Option<RateLimit>,
    /// Whether to continue from what an earlier run left.
    pub resume: bool,
    /// Whether the user vouches that the file does not change, so that ranges are combined although the server gives no
    /// strong validator.
    pub assume_unchanged: bool,
    /// The file that is there, where only a newer one is to be fetched.
    pub newer_than: Option<FileHere>,
    /// Whether a file that has the name which the server or the URL gives is the result, where it is complete: by the checksum, or
    /// else by its size and the entity tag or time. Else it is an error.
    pub accept_complete: bool,
    /// Whether the file gets the time of modification that it has on the server.
    pub keep_time: bool,
    /// How many failures in a row a stream may have.
    pub retries: u32,
    /// How long a stream may deliver next to nothing before it is taken for dead.
    pub stall: Duration,
    /// How to talk to the server. `recv_buffer: None` lets the transfer choose.
    pub client: ClientConfig,
    /// The URL whose server gets the logins and secret headers of `client`, and the .netrc's `default`; no other server does. `None` is a
    /// job's first URL.
    pub logins_for: Option<Url>,
}

/// A file that is complete and verified.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its final name.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
    /// How much of it an earlier run had fetched.
    pub resumed: Bytes,
    /// How long this run took, from the first look-up to the final name.
    pub time: Duration,
    /// What this run fetched, over the time it took.
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

impl From<&Outcome> for Done {
    fn from(outcome: &Outcome) -> Self {
        Self {
            path: outcome.path.clone(),
            bytes: outcome.size,
            resumed: outcome.resumed,
            unchanged: false,
            time: outcome.time,
            goodput: outcome.goodput,
            streams: outcome.streams,
            retransmits: None,
            out_of_order: Some(outcome.out_of_order),
            limited_by: outcome.finding.limit,
            shares: outcome.finding.shares,
            advice: outcome.finding.advice.clone(),
            digest: outcome.digest.clone(),
        }
    }
}
