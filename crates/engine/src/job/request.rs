//! The request of a job.

use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::ETag;
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::units::Bytes;
use url::Url;

use crate::digest::WantedDigests;
use crate::sink::output::{IfExists, Output};
use crate::sink::output_claims::OutputClaims;
use crate::sink::writer::WriterChoice;
use crate::transfer::TransferOptions;
use crate::verify::Verify;

/// A file to fetch.
#[derive(Debug, Clone)]
pub struct Job {
    /// The URLs of the file. The first usable URL describes the file; the others are mirrors.
    pub urls: Vec<Url>,
    /// The destination.
    pub output: Output,
    /// The properties of the file that are known beforehand.
    pub expected: Expected,
    /// The settings of the transfer.
    pub options: JobOptions,
}

/// The properties of a file as stated by a metalink or the user.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The file's name, used if the output is a directory; by default the server's.
    pub name: Option<String>,
    /// The file's size.
    pub size: Option<Bytes>,
    /// One of these is the file's digest, the likeliest first: a list of checksums may not state
    /// the algorithm. None if it is unknown.
    pub checksums: Vec<Checksum>,
    /// Whether a digest from the server is required if `checksums` is empty.
    pub by_server: bool,
    /// The algorithm of a digest to request from the server after the transfer.
    pub stated_by: Option<Algorithm>,
    /// The file's modification time, used if the server does not state it.
    pub modified: Option<SystemTime>,
    /// Whether `modified` is that of the only file that is wanted: one that the server dates
    /// otherwise is another file.
    pub is_dated: bool,
    /// Whether a listing links to the file, so that a directory in its place is an error.
    pub is_listed: bool,
    /// The digests of the file's pieces, which identify the source of wrong bytes.
    pub pieces: Option<Pieces>,
}

impl Expected {
    /// Returns the digests to compute.
    pub(super) fn digests(&self) -> WantedDigests {
        WantedDigests {
            whole: self.checksums.first().map(|checksum| checksum.algorithm).or(self.stated_by),
            pieces: self.pieces.as_ref().map(|pieces| (pieces.algorithm, pieces.length)),
        }
    }
}

/// A file from an earlier fetch.
#[derive(Debug, Clone)]
pub struct FileHere {
    /// The file's modification time.
    pub modified: SystemTime,
    /// The file's entity tag, if the server stated no modification time.
    pub tag: Option<ETag>,
}

impl FileHere {
    /// Returns whether the server's file is not newer, by its time or else by its entity tag.
    pub(super) fn is_as_new_as(&self, modified: Option<SystemTime>, identity: Option<&Identity>) -> bool {
        match (modified, &self.tag, identity) {
            (Some(there), _, _) => there <= self.modified,
            (None, Some(here), Some(Identity::ETag(there))) => here.matches_strongly(there),
            _ => false,
        }
    }
}

/// The settings of a download. By default a complete file of the name is replaced; the command line
/// keeps it.
#[derive(Debug, Clone, Default)]
pub struct JobOptions {
    /// The settings that uploads have, too.
    pub transfer: TransferOptions,
    /// The segment size, a power of two; `None` chooses automatically.
    pub segment: Option<Bytes>,
    /// Whether to count the output file's cached pages for
    /// [`Event::Progress`](longhaul_core::event::Event::Progress). With samples, pages are always
    /// counted.
    pub count_pages: bool,
    /// The method of computing the digest.
    pub verify: Verify,
    /// The writer.
    pub writer: WriterChoice,
    /// The largest size of the file.
    pub max_size: Option<Bytes>,
    /// Whether the user guarantees that the file does not change, so that ranges are combined
    /// without a strong validator.
    pub assume_unchanged: bool,
    /// What is done where a file of the output's name exists.
    pub existing: ExistingFilePolicy,
    /// Whether the file gets the server's modification time.
    pub keep_time: bool,
    /// The URL whose server receives the logins and secret headers of the client, and the .netrc's
    /// `default`; no other server receives them. `None` means the job's first URL.
    pub logins_for: Option<Url>,
}

/// What a download does where a file of the output's name exists.
#[derive(Debug, Clone, Default)]
pub struct ExistingFilePolicy {
    /// The existing file, if only a newer one is to be fetched.
    pub newer_than: Option<FileHere>,
    /// Whether an existing complete file of the name given by the server or the URL is the result.
    /// It is complete by its checksum, or by its size and its entity tag or time. If false, an
    /// existing file is an error.
    pub accept_complete: bool,
    /// What is done with it; `None` replaces one whose name the user chose, and fails for another.
    pub if_exists: Option<IfExists>,
    /// The outputs of the jobs of one command, none of which may have the path of another; `None`
    /// if they may.
    pub claims: Option<Arc<OutputClaims>>,
}
