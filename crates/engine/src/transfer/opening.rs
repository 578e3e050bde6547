//! From a URL to the first answer, an open partial file, and what is left to fetch.

use std::path::Path;

use longhaul_core::event::{Event, Warning};
use longhaul_core::plan::{self, RecvBuffer, RecvLimits};
use longhaul_core::proto::http::{FileName, RangeAnswer, RangeRequest, Validator};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::retry::Backoff;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::tcp_info;
use longhaul_sys::{host, sockopt};

use super::edge;
use super::error::TransferError;
use super::place;
use super::remote::Remote;
use super::request::{GetRequest, Target};
use crate::cancel::Cancel;
use crate::recv::journal::Journal;
use crate::recv::output_error::OutputError;
use crate::recv::part_file::PartFile;
use crate::recv::part_names::is_partial;
use crate::source::http::{Client, ClientConfig, Connection, HttpError, Opened, Retry, SafeUrl};

/// Everything a transfer knows once the first answer is there.
pub(super) struct Opening {
    pub(super) client: Client,
    pub(super) remote: Remote,
    /// The first connection, standing at the body of `first`.
    pub(super) connection: Connection,
    pub(super) first: ByteRange,
    pub(super) part: PartFile,
    /// How to resume later; `None` where the server gives no means to.
    pub(super) journal: Option<Journal>,
    /// What is there already.
    pub(super) committed: RangeSet,
    /// How many streams the server's answer allows.
    pub(super) streams: usize,
}

/// What the first request of several streams asks for, before the size is known.
const FIRST_BLOCK: Bytes = Bytes::mib(16);
/// The least rate that buffers are planned for, whatever the interfaces say of themselves.
const PLANNED_RATE: Rate = Rate::bits_per_sec(10_000_000_000);

/// Asks for the file and opens its partial file; removes that again on failure where nothing is lost by it.
pub(super) fn open(
    request: &GetRequest,
    cancel: &Cancel,
    emit: &dyn Fn(&Event),
) -> Result<Opening, TransferError> {
    let mut opener = Opener { request, cancel, emit, part: None };
    opener.open().inspect_err(|_| {
        if let Some(part) = opener.part.take().filter(|part| part.journal().is_none()) {
            part.discard();
        }
    })
}

struct Opener<'a> {
    request: &'a GetRequest,
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
    fn new(opened: Opened, asked: Option<&RangeRequest>) -> Result<Self, TransferError> {
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
        let client = Client::new(self.request.client.clone())?;
        // Before the network: a target that cannot be written is found out at once.
        match &self.request.target {
            Target::File(path) => self.part = Some(PartFile::open(&place::file(path)?)?),
            Target::Directory(path) => place::directory(path)?,
        }
        let mut prior = self.prior();
        let mut may_resume = self.request.resume;
        loop {
            let answer = match self.ask(&client, prior.as_ref()) {
                // An empty file has no ranges, and a file that has shrunk none that the journal lacks.
                Err(TransferError::Http(HttpError::RangeNotSatisfiable { .. })) => {
                    prior = None;
                    may_resume = false;
                    self.answer(&client, None)?
                }
                answer => answer?,
            };
            let journal = self.journal_of(&answer.remote);
            self.name(&answer)?;
            let same = |old: &Journal| journal.as_ref().is_some_and(|new| old.same_file(new));
            if let Some(old) = prior.take() {
                match answer.held {
                    RangeAnswer::Part { .. } if same(&old) => {
                        let (client, answer) = self.with_larger_buffer(client, answer, Some(&old))?;
                        return self.opened(client, answer, journal, old.committed());
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
                prior = self.prior().filter(same);
                if prior.is_some() {
                    continue;
                }
            }
            let (client, answer) = self.with_larger_buffer(client, answer, None)?;
            return self.opened(client, answer, journal, RangeSet::new());
        }
    }

    /// Reads the journal of an earlier run, if it has committed anything.
    fn prior(&self) -> Option<Journal> {
        let journal = self.part.as_ref().filter(|_| self.request.resume)?.journal()?;
        (journal.committed().total() > Bytes::ZERO).then_some(journal)
    }

    /// Chooses what the first request asks for; `None` for the whole file.
    fn first_range(&self, prior: Option<&Journal>) -> Option<RangeRequest> {
        let several = self.request.streams > 1;
        match prior {
            Some(journal) => {
                let size = journal.size;
                // All there: the last byte once more, to hear whether the file is still the same.
                let last = ByteRange::new(size.saturating_sub(1), size);
                let gap = journal.committed().gaps(ByteRange::new(0, size)).first().copied().unwrap_or(last);
                let end = if several { gap.end().min(gap.start() + FIRST_BLOCK.get()) } else { gap.end() };
                RangeRequest::of(ByteRange::new(gap.start(), end)).map(|r| r.only_if(journal.validator()))
            }
            None if several => RangeRequest::of(ByteRange::with_len(0, FIRST_BLOCK)),
            None => None,
        }
    }

    fn ask(&self, client: &Client, prior: Option<&Journal>) -> Result<Answer, TransferError> {
        let answer = self.answer(client, self.first_range(prior))?;
        // Parts of a file whose size nobody tells cannot be put together: better all of it at once.
        if matches!(answer.held, RangeAnswer::Part { total: None, .. }) {
            return self.answer(client, None);
        }
        Ok(answer)
    }

    fn answer(&self, client: &Client, range: Option<RangeRequest>) -> Result<Answer, TransferError> {
        Answer::new(self.open_patiently(client, range.as_ref())?, range.as_ref())
    }

    /// Tries again where the server asks for it or was merely slow; whom nobody reaches at this point is not there.
    fn open_patiently(&self, client: &Client, range: Option<&RangeRequest>) -> Result<Opened, TransferError> {
        let mut backoff = Backoff::new(self.request.retries);
        loop {
            let error = match client.open(&self.request.url, range, self.cancel) {
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

    /// Finds the file's name, where the user gave only a directory, and opens the partial file.
    fn name(&mut self, answer: &Answer) -> Result<(), TransferError> {
        if let (Target::Directory(directory), None) = (&self.request.target, &self.part) {
            let from_url = || FileName::from_url_path(answer.remote.place.url().path());
            let name = answer.opened.head.file_name().or_else(from_url);
            let name = name.filter(|name| !is_partial(name.as_str()));
            let path = directory.join(name.as_ref().map_or("download", FileName::as_str));
            if path.is_dir() || path.symlink_metadata().is_err() {
                self.part = Some(PartFile::open(&path)?);
            } else {
                return Err(OutputError::Exists(path).into());
            }
        }
        Ok(())
    }

    fn journal_of(&self, remote: &Remote) -> Option<Journal> {
        let url = &self.request.url;
        Some(Journal::new(
            url.as_str(),
            SafeUrl::of(url).to_string(),
            remote.size?,
            remote.validator.as_ref()?,
        ))
    }

    /// Connects anew with a larger receive buffer where the kernel's autotuning cannot reach what the path needs.
    ///
    /// The RTT is known only now, and the window's scale is fixed by the SYN. Where the second try
    /// fails, as with a URL that works once, the first connection goes on.
    fn with_larger_buffer(
        &self,
        client: Client,
        answer: Answer,
        prior: Option<&Journal>,
    ) -> Result<(Client, Answer), TransferError> {
        let small = answer.remote.size.is_some_and(|size| size < FIRST_BLOCK);
        let rtt = tcp_info::read(answer.opened.connection.socket()).ok().and_then(|info| info.rtt());
        let (Some(rtt), None, false) = (rtt, self.request.client.recv_buffer, small) else {
            return Ok((client, answer));
        };
        let Some(buffer) = larger_buffer(rtt, self.request.streams) else {
            return Ok((client, answer));
        };
        // A buffer that is set offers all of its window at once, and an offered window cannot be taken back.
        if self.request.streams == 1
            && edge::is_for(self.request.pace, &answer.remote, &answer.opened.connection)
        {
            return Ok((client, answer));
        }
        let config = ClientConfig { recv_buffer: Some(buffer), ..self.request.client.clone() };
        let raised = Client::new(config)?;
        let range = self.first_range(prior);
        // Once only: the first connection does not wait for ever.
        let better = raised.open(&self.request.url, range.as_ref(), self.cancel);
        Ok(match better.map_err(TransferError::from).and_then(|opened| Answer::new(opened, range.as_ref())) {
            Ok(better) if better.held == answer.held && answer.remote.is_same(&better.opened.head) => {
                (raised, better)
            }
            _ => (client, answer),
        })
    }

    fn opened(
        &mut self,
        client: Client,
        answer: Answer,
        journal: Option<Journal>,
        committed: RangeSet,
    ) -> Result<Opening, TransferError> {
        let Some(part) = self.part.take() else {
            return Err(OutputError::IsDirectory(Path::new(".").to_owned()).into());
        };
        let first = match answer.held {
            RangeAnswer::Part { range, .. } => range,
            RangeAnswer::Whole { total } => ByteRange::new(0, total.map_or(u64::MAX, Bytes::get)),
        };
        let streams = match answer.held {
            RangeAnswer::Part { .. } if answer.remote.size.is_some() => self.request.streams.max(1),
            _ => 1,
        };
        // An empty file has no ranges either, and needs none.
        if streams < self.request.streams && answer.remote.size != Some(Bytes::ZERO) {
            (self.emit)(&Event::Warning(Warning::NoRanges));
        }
        Ok(Opening {
            client,
            remote: answer.remote,
            connection: answer.opened.connection,
            first,
            part,
            journal,
            committed,
            streams,
        })
    }
}

/// Returns the receive buffer to ask for, where autotuning cannot reach the path's need.
pub(super) fn larger_buffer(rtt: Rtt, streams: usize) -> Option<Bytes> {
    let limits = RecvLimits {
        tcp_rmem_max: host::tcp_rmem_max()?,
        rmem_max: host::rmem_max().unwrap_or_default(),
        may_force: sockopt::may_force_recv_buffer(),
    };
    let line = host::fastest_interface().unwrap_or_default().max(PLANNED_RATE);
    let share = Rate::bits_per_sec(line.as_bits_per_sec() / streams.max(1) as u64);
    match plan::recv_buffer(limits, share, rtt) {
        RecvBuffer::Set(buffer) => Some(buffer),
        RecvBuffer::Autotune => None,
    }
}
