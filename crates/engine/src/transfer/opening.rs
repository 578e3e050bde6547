//! From a URL to the first answer, an open partial file, and what is left to fetch.

mod known_pace;
mod second_connection;

use longhaul_core::event::{Event, Warning};
use longhaul_core::proto::http::{FileName, RangeAnswer, RangeRequest, Validator};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::retry::Backoff;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;

use known_pace::KnownPace;

use super::error::TransferError;
use super::memory::Memory;
use super::remote::Remote;
use super::request::{GetRequest, Streams};
use super::tuning;
use crate::cancel::Cancel;
use crate::path_memory::KnownPath;
use crate::sink::journal::{Journal, JournalSource, SourceMatch};
use crate::sink::output::PreparedOutput;
use crate::sink::output_error::OutputError;
use crate::sink::part_file::PartFile;
use crate::source::http::{self, Client, ClientConfig, Connection, HttpError, Opened, Retry, SafeUrl};

/// Everything a transfer knows once the first answer is there.
pub(super) struct Opening {
    pub(super) client: Client,
    pub(super) remote: Remote,
    /// The first connection, standing at the body of `first`.
    pub(super) connection: Connection,
    pub(super) first: ByteRange,
    pub(super) part: PartFile,
    /// Whether the file may take the place of another.
    pub(super) replace: bool,
    /// How to resume later; `None` where the server gives no means to.
    pub(super) journal: Option<Journal>,
    /// What is there already.
    pub(super) committed: RangeSet,
    /// Whether the answer lets other streams have a part of the file.
    pub(super) shareable: bool,
    /// What an earlier transfer found the path to be.
    pub(super) known: Option<KnownPath>,
    /// What is remembered and no longer true: to be kept as this.
    pub(super) corrected: Option<KnownPath>,
}

/// What the first request of several streams asks for, before the size is known.
const FIRST_BLOCK: Bytes = Bytes::mib(16);
/// What it asks for at least: the first request shall bring something.
const SMALLEST_BLOCK: Bytes = Bytes::kib(64);
/// From this RTT on a window or a send buffer may be what limits a stream, so that others may come.
const LONG_RTT: Rtt = Rtt::new(std::time::Duration::from_millis(5));

/// Asks for the file and opens its partial file; removes that again on failure where nothing is lost by it.
pub(super) fn open(
    request: &GetRequest,
    memory: &Memory,
    cancel: &Cancel,
    emit: &dyn Fn(&Event),
) -> Result<Opening, TransferError> {
    let known_pace = KnownPace::of(request, memory);
    let mut opener = Opener { request, memory, known_pace, cancel, emit, part: None };
    opener.open().inspect_err(|_| {
        if let Some(part) = opener.part.take() {
            part.abandon();
        }
    })
}

struct Opener<'a> {
    request: &'a GetRequest,
    memory: &'a Memory,
    /// What the server is asked for, until it turns out to be untrue.
    known_pace: Option<KnownPace>,
    cancel: &'a Cancel,
    emit: &'a dyn Fn(&Event),
    part: Option<PartFile>,
}

/// An answer and what it holds.
struct Answer {
    opened: Opened,
    held: RangeAnswer,
    remote: Remote,
}

impl Answer {
    fn new(opened: Opened) -> Result<Self, TransferError> {
        let asked = opened.asked.as_ref();
        let held = RangeAnswer::of(&opened.head, asked)
            .map_err(|source| TransferError::Range { url: opened.target.safe_url().to_string(), source })?;
        let (whole, size) = match held {
            RangeAnswer::Whole { total } => (true, total),
            RangeAnswer::Part { total, .. } => (false, total),
        };
        // A date may be left out of a 206 that answers If-Range; an ETag may not (RFC 9110, section 15.3.7).
        let dated = |v: &&Validator| matches!(v, Validator::LastModified(_)) && !whole;
        let vouched = asked.and_then(RangeRequest::if_range).filter(dated);
        let remote = Remote::new(&opened, size, whole, vouched);
        Ok(Self { opened, held, remote })
    }
}

impl Opener<'_> {
    fn open(&mut self) -> Result<Opening, TransferError> {
        let client = Client::new(self.config()?)?;
        // Before the network: a target that cannot be written is found out at once.
        let output = self.request.target.prepare()?;
        if output.name().is_some() {
            self.part = Some(output.open(None)?);
        }
        let mut prior = self.prior()?;
        let mut may_resume = self.request.resume;
        loop {
            let answer = match self.ask(&client, prior.as_ref()) {
                // An empty file has no ranges, and a file that has shrunk none that the journal lacks.
                Err(TransferError::Http(HttpError::RangeNotSatisfiable { .. })) => {
                    prior = None;
                    may_resume = false;
                    self.answer(&client, &|_, _| None)?
                }
                answer => answer?,
            };
            let journal = self.journal_of(&answer.remote);
            let part = self.name(&output, &answer)?;
            self.part = Some(part);
            let same = |old: &Journal| self.is_of(old, &answer.remote);
            if let Some(old) = prior.take() {
                match answer.held {
                    RangeAnswer::Part { .. } if same(&old) => {
                        return self.opened(
                            client,
                            answer,
                            (journal, old.committed().clone()),
                            output.replaces(),
                        );
                    }
                    // Another file than the one begun, though its server ignored If-Range: from the start.
                    RangeAnswer::Part { .. } => {
                        may_resume = false;
                        continue;
                    }
                    RangeAnswer::Whole { .. } => {
                        let why = if same(&old) {
                            "this server answers no ranges"
                        } else {
                            "the file has changed since the last run"
                        };
                        (self.emit)(&Event::Warning(Warning::StartingOver { reason: why.to_owned() }));
                    }
                }
            } else if may_resume {
                // The name came with this answer, and under it there is a partial file: ask for what it lacks.
                prior = self.prior()?.filter(same);
                if prior.is_some() {
                    continue;
                }
            }
            return self.opened(client, answer, (journal, RangeSet::new()), output.replaces());
        }
    }

    /// Returns how to talk to the server.
    fn config(&self) -> Result<ClientConfig, HttpError> {
        match &self.known_pace {
            Some(known) => known.config(self.request),
            None => Ok(self.request.client.clone()),
        }
    }

    /// Reads the journal of an earlier run, if it has committed anything.
    fn prior(&self) -> Result<Option<Journal>, OutputError> {
        let Some(part) = self.part.as_ref().filter(|_| self.request.resume) else { return Ok(None) };
        let journal = part.journal()?.sound();
        Ok(journal.filter(|journal| journal.committed().total() > Bytes::ZERO))
    }

    /// Chooses what the first request asks for; `None` for the whole file.
    fn first_range(
        &self,
        prior: Option<&Journal>,
        connection: &Connection,
        place: &http::ResolvedUrl,
    ) -> Option<RangeRequest> {
        let block = self.first_block(connection, place);
        match prior {
            Some(journal) => {
                let size = journal.size().get();
                // All there: the last byte once more, to hear whether the file is still the same.
                let last = ByteRange::new(size.saturating_sub(1), size);
                let gap = journal.committed().gaps(ByteRange::new(0, size)).first().copied().unwrap_or(last);
                let end = block.map_or(gap.end(), |block| gap.end().min(gap.start() + block.get()));
                let validator = journal.sources().last().and_then(|source| source.identity().if_range());
                RangeRequest::of(ByteRange::new(gap.start(), end)).map(|r| r.only_if(validator))
            }
            None => block.and_then(|block| RangeRequest::of(ByteRange::with_len(0, block))),
        }
    }

    /// Returns how much the first request asks for where others may come; `None` where one stream is to have it all.
    fn first_block(&self, connection: &Connection, place: &http::ResolvedUrl) -> Option<Bytes> {
        match self.request.streams {
            Streams::Fixed(1) => None,
            Streams::Fixed(_) => Some(FIRST_BLOCK),
            Streams::Auto => {
                let rtt = handshake_rtt(connection).unwrap_or_default();
                let known = self.memory.recall(place.url());
                let several = |known: &KnownPath| known.still_holds(rtt).is_some_and(|path| path.streams > 1);
                // A server that begins with half of the rate of last time has not sent this much before it is asked for more.
                let at_once = self.known_pace.as_ref().map(|path| path.rate().bdp(rtt));
                let block = at_once.map_or(FIRST_BLOCK, |bytes| bytes.max(FIRST_BLOCK));
                (rtt >= LONG_RTT || known.is_some_and(several)).then_some(block)
            }
            Streams::Apt(apt) => {
                let part = tuning::part_of_first_chunk(self.request, apt, connection);
                Some(part.clamp(SMALLEST_BLOCK, FIRST_BLOCK))
            }
        }
    }

    fn ask(&self, client: &Client, prior: Option<&Journal>) -> Result<Answer, TransferError> {
        let answer = self.answer(client, &|connection, place| self.first_range(prior, connection, place))?;
        // Parts of a file whose size nobody tells cannot be put together: better all of it at once.
        if matches!(answer.held, RangeAnswer::Part { total: None, .. }) {
            return self.answer(client, &|_, _| None);
        }
        Ok(answer)
    }

    fn answer(&self, client: &Client, choose: &http::Chooser<'_>) -> Result<Answer, TransferError> {
        Answer::new(self.open_patiently(client, choose)?)
    }

    /// Tries again where the server asks for it or was merely slow; whom nobody reaches at this point is not there.
    fn open_patiently(&self, client: &Client, choose: &http::Chooser<'_>) -> Result<Opened, TransferError> {
        let mut backoff = Backoff::new(self.request.retries);
        loop {
            let error = match client.open_part(&self.request.url, choose, self.cancel) {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            let asked_to_wait = match (&error, error.retry()) {
                (_, Retry::Never) => return Err(error.into()),
                (_, Retry::Now) if error.is_before_connection() => return Err(error.into()),
                (_, Retry::Now) => None,
                (_, Retry::After(wait)) => Some(wait),
            };
            let Some(wait) = backoff.failed(asked_to_wait, 0.5) else { return Err(error.into()) };
            (self.emit)(&Event::Retrying { stream: 0, reason: error.to_string(), wait });
            if self.cancel.sleep(wait) {
                return Err(HttpError::Cancelled.into());
            }
        }
    }

    /// Opens the partial file under the name that the answer or the URL gives, where it is not open yet.
    fn name(&mut self, output: &PreparedOutput, answer: &Answer) -> Result<PartFile, OutputError> {
        if let Some(part) = self.part.take() {
            return Ok(part);
        }
        let from_url = || FileName::from_url_path(answer.remote.place.url().path());
        let name = answer.opened.head.file_name().or_else(from_url);
        output.open(name.as_ref().map(FileName::as_str))
    }

    fn journal_of(&self, remote: &Remote) -> Option<Journal> {
        let (url, identity) = (&self.request.url, remote.validator.clone()?.into());
        let source = JournalSource::new(url.as_str(), SafeUrl::of(url).to_string(), identity);
        Some(Journal::new(remote.size?, vec![source], self.request.checksum.clone()))
    }

    /// Returns whether a journal is of this file in this state.
    fn is_of(&self, journal: &Journal, remote: &Remote) -> bool {
        let (url, identity) = (self.request.url.as_str(), remote.validator.clone().map(Into::into));
        let found = |size| journal.match_source(url, size, identity.as_ref(), None);
        remote.size.is_some_and(|size| found(size) == SourceMatch::Same)
    }

    fn opened(
        &mut self,
        client: Client,
        answer: Answer,
        (journal, committed): (Option<Journal>, RangeSet),
        replace: bool,
    ) -> Result<Opening, TransferError> {
        let untrue = self.known_pace.take_if(|known| !known.is_borne_out_by(&answer));
        let (client, answer) = self.with_what_fits(client, answer, untrue.is_some())?;
        let Some(part) = self.part.take() else {
            return Err(TransferError::Internal("the partial file was not opened".to_owned()));
        };
        let first = match answer.held {
            RangeAnswer::Part { range, .. } => range,
            RangeAnswer::Whole { total } => ByteRange::new(0, total.map_or(u64::MAX, Bytes::get)),
        };
        let in_blocks = self.first_block(&answer.opened.connection, &answer.remote.place).is_some();
        let is_part = matches!(answer.held, RangeAnswer::Part { .. }) && answer.remote.size.is_some();
        let shareable = in_blocks && is_part;
        // An empty file has no ranges either, and needs none; nor does anybody who did not ask for several streams.
        let several = !matches!(self.request.streams, Streams::Fixed(1) | Streams::Auto);
        if several && !shareable && answer.remote.size != Some(Bytes::ZERO) {
            (self.emit)(&Event::Warning(Warning::NoRanges));
        }
        let known = self.memory.recall(answer.remote.place.url()).cloned();
        Ok(Opening {
            client,
            remote: answer.remote,
            connection: answer.opened.connection,
            first,
            part,
            replace,
            journal,
            committed,
            shareable,
            known,
            corrected: untrue.map(KnownPace::corrected),
        })
    }
}

/// Returns the RTT of the connection's handshake.
pub(super) fn handshake_rtt(connection: &Connection) -> Option<Rtt> {
    tcp_info::read(connection.socket()).ok().and_then(|info| info.rtt())
}
