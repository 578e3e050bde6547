//! A file on an HTTP server: described by its first answer, fetched by ranges.

mod connections_ahead;
mod disagreements;
pub(super) mod first_answer;
pub(super) mod location;
mod published_pieces;
mod refit;
pub(super) mod remote_file;

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_core::event::{Event, Warning};
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Retry;
use parking_lot::Mutex;
use url::Url;

use super::SafeUrl;
use super::client::Client;
use super::connection::Connection;
use super::error::HttpError;
use super::worker::HttpWorker;
use crate::cancel::Cancel;
use crate::path_memory::{KnownPath, Paths};
use crate::source::http::client::clients::Clients;
use crate::source::http::http_source::connections_ahead::ConnectionsAhead;
use crate::source::http::http_source::disagreements::{Disagreement, Disagreements};
use crate::source::http::http_source::first_answer::{FirstAnswer, handshake_rtt};
use crate::source::http::http_source::location::Location;
use crate::source::http::http_source::refit::holds;
use crate::source::http::http_source::remote_file::{Agreement, RemoteFile, held_by};
use crate::source::{DescribeRequest, Description, Source, StreamPeer, StreamWorker};
use crate::transfer::TransferOptions;

/// The settings of a source.
#[derive(Debug, Clone)]
pub(crate) struct SourceOptions {
    pub(crate) transfer: TransferOptions,
    /// Whether the user guarantees that a file without a strong validator does not change.
    pub(crate) assume_unchanged: bool,
    /// Whether ranges alone are of use: the whole file is not requested if the server fails at
    /// them.
    pub(crate) needs_ranges: bool,
}

/// One URL of a file.
pub(crate) struct HttpSource<'e> {
    pub(super) url: Url,
    pub(super) shown: String,
    pub(super) options: SourceOptions,
    pub(super) clients: &'e Clients,
    pub(super) paths: Arc<Paths>,
    described: Mutex<Option<Arc<DescribedSource>>>,
    pub(super) unused: Mutex<UnusedConnections>,
    /// The target that the URL redirects to.
    pub(super) location: Mutex<Location>,
    /// Held by a worker while it requests the original URL again: one at a time.
    pub(super) refreshing: Mutex<()>,
    disagreements: Disagreements,
}

/// Connections that no stream has taken yet.
#[derive(Default)]
pub(super) struct UnusedConnections {
    /// The first connection, at the start of the body of the range.
    pub(super) first: Option<(Connection, ByteRange)>,
    /// Those for further streams, opened while the first answer was awaited.
    pub(super) ahead: Option<ConnectionsAhead>,
}

/// The results of the first answer.
pub(super) struct DescribedSource {
    pub(super) client: Arc<Client>,
    pub(super) file: RemoteFile,
    /// Metalinks that describe the file (RFC 6249, section 4).
    pub(super) metalinks: Vec<Url>,
}

impl<'e> HttpSource<'e> {
    pub(crate) fn new(url: Url, options: SourceOptions, clients: &'e Clients, paths: Arc<Paths>) -> Self {
        Self {
            shown: SafeUrl::of(&url).to_string(),
            url,
            options,
            clients,
            paths,
            described: Mutex::default(),
            unused: Mutex::default(),
            location: Mutex::default(),
            refreshing: Mutex::default(),
            disagreements: Disagreements::default(),
        }
    }

    /// Connects to the server with the settings of the first request, and holds the connection for
    /// a request expected within seconds.
    pub(crate) fn hold_early(&self) -> Result<(), HttpError> {
        self.first_client(self.known_pace())?.hold_early(&self.url)
    }

    /// Returns the results of the first answer.
    pub(super) fn described(&self) -> Result<Arc<DescribedSource>, Failure> {
        let out_of_order = || {
            let message = format!("{} was used before it was described", self.shown);
            Failure::new(FailureKind::Internal, message)
        };
        self.described.lock().clone().ok_or_else(out_of_order)
    }

    /// Closes the connections that no stream has taken.
    pub(super) fn close_ahead(&self) {
        self.unused.lock().ahead = None;
    }

    /// Returns whether the whole file may be requested because the server failed at ranges: once
    /// only.
    pub(super) fn falls_back(&self) -> bool {
        !self.options.needs_ranges && self.described().is_ok_and(|described| described.file.falls_back())
    }

    /// Records an answer with bytes of the described file.
    pub(super) fn agreed(&self) {
        self.disagreements.reset();
        self.location.lock().note_answer();
    }

    /// Records an answer with another file from `peer`; returns the error, and whether to avoid the
    /// address.
    pub(super) fn disagreed(&self, peer: SocketAddr, difference: &str) -> (Failure, bool) {
        let Disagreement { is_final, avoid_address } = self.disagreements.count(peer);
        let retry = if is_final || self.options.transfer.retries == 0 { Retry::Never } else { Retry::AtOnce };
        (self.other_file(difference, retry), avoid_address)
    }

    fn other_file(&self, difference: &str, retry: Retry) -> Failure {
        let shown = &self.shown;
        let message = format!(
            "{shown} changed on the server during the transfer ({difference}); use --no-resume to fetch the new file"
        );
        Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile).with_retry(retry)
    }

    /// Reads a small range, within the timeout of a head.
    fn read_sample(&self, mut connection: Connection, part: ByteRange) -> Result<Vec<u8>, Failure> {
        let patience = self.options.transfer.client.timeouts.head;
        let (mut bytes, has_ended) = connection.read_all(part.len(), patience)?;
        let is_late = !has_ended && bytes.len() < part.len().as_usize();
        bytes.truncate(part.len().as_usize());
        if is_late { Err(Failure::stalled(&self.shown, part.len(), patience)) } else { Ok(bytes) }
    }
}

impl StreamPeer for HttpSource<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker + '_> {
        Box::new(HttpWorker::new(self))
    }

    fn takes_one_stream(&self) -> bool {
        self.described().is_ok_and(|described| described.file.refuses_ranges())
    }
}

impl Source for HttpSource<'_> {
    fn describe(&self, request: &DescribeRequest<'_>) -> Result<Description, Failure> {
        let known_pace = self.known_pace();
        let client = self.first_client(known_pace)?;
        let answer = self.ask(&client, request, known_pace)?;
        let rtt = handshake_rtt(&answer.opened.connection);
        let untrue = known_pace.is_some_and(|known| !holds(known, answer.file.pace.is_some(), rtt));
        let (client, answer) = self.refit(client, answer, untrue, request.cancel)?;
        let mut description = self.description(&answer, known_pace.filter(|_| !untrue));
        if untrue {
            description.path.corrected = self.recall(&self.url).cloned().map(KnownPath::not_paced);
        }
        let head = &answer.opened.head;
        if let Some(coding) = head.content_coding().filter(|_| head.is_coded_on_the_fly()) {
            (request.emit)(&Event::Warning(Warning::Coded { url: self.shown.clone(), coding }));
        }
        let metalinks = self.metalinks(&answer.opened);
        let FirstAnswer { opened, file, .. } = answer;
        *self.described.lock() = Some(Arc::new(DescribedSource { client, file, metalinks }));
        *self.location.lock() = Location::new(opened.target);
        self.unused.lock().first = Some((opened.connection, description.ranges.first));
        Ok(description)
    }

    fn sample(&self, part: ByteRange, cancel: &Cancel) -> Result<Vec<u8>, Failure> {
        let described = self.described()?;
        let DescribedSource { client, file, .. } = &*described;
        // If the server does not support If-Range, the request is repeated without it.
        for _ in 0..2 {
            let request = file.request(part).map(|request| request.only_if(file.if_range()));
            let opened = client.open(&self.url, request.as_ref(), cancel)?;
            let with_if_range = request.is_some_and(|request| request.if_range().is_some());
            match file.agreement(&opened.head, held_by(&opened)?, with_if_range) {
                Agreement::Part(held) => return self.read_sample(opened.connection, held),
                Agreement::IfRangeRefused => file.refuse_if_range(),
                _ => return Err(self.other_file(&file.difference(&opened.head), Retry::Never)),
            }
        }
        let message = format!("{} answered a request for a part with the whole file", self.shown);
        Err(Failure::new(FailureKind::Protocol, message).caused_by(Cause::OtherFile))
    }

    fn published_pieces(&self, cancel: &Cancel) -> Result<Option<Pieces>, Failure> {
        self.pieces_of_metalinks(cancel)
    }

    fn expect_streams(&self, streams: usize) {
        let ahead = &mut self.unused.lock().ahead;
        if streams > 1 {
            // One stream uses the first connection.
            ahead.iter_mut().for_each(|ahead| ahead.connections.truncate(streams - 1));
        } else {
            *ahead = None;
        }
    }

    fn abandon(&self) {
        *self.unused.lock() = UnusedConnections::default();
    }
}
