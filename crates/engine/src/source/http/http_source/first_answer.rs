//! The first request for a file: chooses its length, and describes the file by its answer.

use std::cell::RefCell;

use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::proto::http::{FileName, RangeAnswer, RangeRequest, ResponseHead, UNASKED};
use longhaul_core::ranges::ByteRange;
use longhaul_core::tune::pace::HeldRate;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::tcp_info;
use url::Url;

use crate::path_memory::{Endpoint, KnownPath};
use crate::retry_loop::Retries;
use crate::source::http::ResolvedUrl;
use crate::source::http::client::{Chooser, Client, OpenedUrl};
use crate::source::http::connection::Connection;
use crate::source::http::error::{HttpError, bad_range};
use crate::source::http::http_source::HttpSource;
use crate::source::http::http_source::remote_file::{RemoteFile, held_by};
use crate::source::{
    DescribeRequest, Description, FileDescription, Published, RangeAccess, ServerPath, first_window,
    may_pay_several,
};
use crate::transfer::{AptSettings, Streams};

/// The length of the first request of several streams, before the size is known.
pub(crate) const FIRST_BLOCK: Bytes = Bytes::mib(16);
/// The minimum length of the first request.
const MIN_FIRST_BLOCK: Bytes = Bytes::kib(64);
/// The number of failed requests for a range after which the whole file is requested: the server
/// may fail at any range.
pub(crate) const MAX_RANGE_FAILURES: u32 = 3;
/// A first answer and the range that it contains.
pub(crate) struct FirstAnswer {
    pub(crate) opened: OpenedUrl,
    pub(crate) held: RangeAnswer,
    pub(crate) file: RemoteFile,
}

/// The way in which a server failed at a request for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeFailure {
    /// It has no byte of the range.
    Unsatisfiable,
    /// It refused the request.
    Refused,
    /// It answered with another part, or with none.
    Misread,
    /// It closed the connection or reported an internal error, which may have another cause.
    Broken,
}

impl HttpSource<'_> {
    /// Chooses the range of the first request; `None` for the whole file.
    fn first_range(
        &self,
        request: &DescribeRequest<'_>,
        known_pace: Option<HeldRate>,
        connection: &Connection,
        target: &ResolvedUrl,
    ) -> Option<RangeRequest> {
        let block = request.at_most.or_else(|| self.first_block(known_pace, connection, target));
        match &request.resume {
            Some(resume) => {
                let end = block.map_or(resume.gap.end(), |block| {
                    resume.gap.end().min(resume.gap.start().saturating_add(block.get()))
                });
                let request = RangeRequest::of(ByteRange::new(resume.gap.start(), end));
                request.map(|request| request.only_if(resume.identity.if_range()))
            }
            None => block.and_then(|block| RangeRequest::of(ByteRange::with_len(0, block))),
        }
    }

    /// Returns the length of the first request if several streams may follow; `None` if one should
    /// fetch all.
    fn first_block(
        &self,
        known_pace: Option<HeldRate>,
        connection: &Connection,
        target: &ResolvedUrl,
    ) -> Option<Bytes> {
        match self.options.transfer.streams {
            Streams::Fixed(1) => None,
            Streams::Fixed(_) => Some(FIRST_BLOCK),
            Streams::Auto => {
                let rtt = handshake_rtt(connection).unwrap_or_default();
                // A server that starts at half of the stored rate has not sent this much before the
                // next request.
                let at_once = known_pace.map(|path| path.rate.bdp(rtt));
                let block = at_once.map_or(FIRST_BLOCK, |bytes| bytes.max(FIRST_BLOCK));
                may_pay_several(rtt, self.recall(target.url())).then_some(block)
            }
            Streams::Apt(AptSettings { delta, .. }) => {
                // The bytes that one stream delivers of the first chunk: W Delta / R.
                let rtt = handshake_rtt(connection).unwrap_or_default();
                let part = Rate::over(
                    first_window(self.options.transfer.client.recv_buffer, connection.socket()),
                    rtt.get(),
                )
                .bdp(Rtt::new(delta));
                Some(part.clamp(MIN_FIRST_BLOCK, FIRST_BLOCK))
            }
        }
    }

    pub(crate) fn recall(&self, url: &Url) -> Option<&KnownPath> {
        self.paths.to(&Endpoint::of(url)?)
    }

    /// Requests the first range; the whole file if the server fails at ranges, or if those of
    /// several answers must not be combined.
    pub(crate) fn ask(
        &self,
        client: &Client,
        request: &DescribeRequest<'_>,
        known_pace: Option<HeldRate>,
    ) -> Result<FirstAnswer, Failure> {
        let whole = |_: &Connection, _: &ResolvedUrl| None;
        let ranged = RefCell::new(None);
        let choose = |connection: &Connection, target: &ResolvedUrl| {
            // The bytes of an earlier run are worth a try.
            let range = if request.resume.is_none() && client.refuses_ranges(target, None) {
                None
            } else {
                self.first_range(request, known_pace, connection, target)
            };
            if range.is_some() && request.at_most.is_none() && known_pace.is_none() {
                self.begin_ahead(connection, target, request.left);
            }
            *ranged.borrow_mut() = range.clone().map(|range| (range, target.clone()));
            range
        };
        let may_give_up = || {
            let fails =
                |target: &ResolvedUrl| request.resume.is_none() || client.refuses_ranges(target, None);
            request.falls_back && ranged.borrow().as_ref().is_some_and(|(_, target)| fails(target))
        };
        let (first, failure) = match self.open(client, &choose, request, &may_give_up) {
            Ok(opened) => {
                let falls_back = request.resume.is_none() && request.falls_back;
                let failure = falls_back.then_some(RangeFailure::Misread);
                (self.first_answer(client, opened), failure)
            }
            Err(error) => {
                let shrunk = match (&error, &request.resume) {
                    (HttpError::RangeNotSatisfiable { total: Some(total), .. }, Some(resume)) => {
                        total.get() < resume.gap.end()
                    }
                    _ => false,
                };
                let failure = error.range_failure().filter(|failure| match failure {
                    RangeFailure::Unsatisfiable if request.resume.is_none() => true,
                    RangeFailure::Unsatisfiable if shrunk => false,
                    // A resumed file is asked for again by a range before it is begun anew.
                    _ => request.falls_back,
                });
                (Err(error.into()), failure)
            }
        };
        let answer = match (first, failure.zip(ranged.take())) {
            (Err(error), Some((failure, (range, target)))) => {
                self.close_ahead();
                let whole = self.open(client, &whole, request, &|| false).map_err(Failure::from);
                let answer = whole.and_then(|opened| {
                    // A cache may repeat the part that it has kept.
                    let (status, length) = (opened.head.status(), opened.head.content_length());
                    if status == 206
                        && opened.head.content_range().is_none()
                        && length == Some(range.range().len())
                    {
                        return Err(bad_range(&self.shown, &UNASKED));
                    }
                    // A file that ends before it, as an empty one does, has no such range.
                    let length = opened.head.content_length();
                    let has_range = length.is_none_or(|length| length.get() > range.range().start());
                    if failure != RangeFailure::Unsatisfiable || has_range {
                        client.note_range_failure(&target, failure);
                    }
                    self.first_answer(client, opened)
                });
                // A server that answers everything wrongly is explained by its first answer.
                return match answer {
                    Err(again) if failure == RangeFailure::Misread && again.cause == Cause::Connection => {
                        Err(error)
                    }
                    answer => answer,
                };
            }
            (first, _) => first?,
        };
        match answer.held {
            // Some servers state the length of the part as that of the file: what was asked for
            // ends where the file is said to.
            RangeAnswer::Part { range, total: Some(total) }
                if range == ByteRange::with_len(0, total)
                    && answer.opened.requested.as_ref().is_some_and(|asked| asked.range() == range) =>
            {
                let again = self.open(client, &whole, request, &|| false)?;
                if again.head.content_length() != Some(total) {
                    client.note_range_failure(&again.target, RangeFailure::Misread);
                }
                self.first_answer(client, again)
            }
            RangeAnswer::Part { range, total } => {
                let all = total.is_some_and(|total| range == ByteRange::with_len(0, total));
                if all || (total.is_some() && answer.file.identity.is_some()) {
                    return Ok(answer);
                }
                let again = self.first_answer(client, self.open(client, &whole, request, &|| false)?)?;
                let Some(total) = total.filter(|total| again.file.size != Some(*total)) else {
                    return Ok(again);
                };
                // The answer is another document or has no length; the answer to a range of the
                // whole file has both in its head.
                let all = ByteRange::with_len(0, total);
                let by_range = |_: &Connection, _: &ResolvedUrl| RangeRequest::of(all);
                let by_range =
                    self.first_answer(client, self.open(client, &by_range, request, &|| false)?)?;
                match by_range.held {
                    RangeAnswer::Part { range, .. } if range == all => Ok(by_range),
                    RangeAnswer::Whole { total: Some(size) } if size == total => Ok(by_range),
                    _ => Err(self.not_the_file(total, &by_range.opened.head)),
                }
            }
            RangeAnswer::Whole { .. } => Ok(answer),
        }
    }

    fn not_the_file(&self, total: Bytes, head: &ResponseHead) -> Failure {
        let (shown, content) = (&self.shown, head.describe_content());
        let message = format!(
            "{shown} announced a file of {} bytes, and then sent {content} instead of it",
            total.get()
        );
        Failure::new(FailureKind::Data, message).caused_by(Cause::OtherFile)
    }

    pub(crate) fn first_answer(&self, client: &Client, opened: OpenedUrl) -> Result<FirstAnswer, Failure> {
        let held = held_by(&opened)?;
        let refuses_ranges =
            opened.requested.is_none() && client.refuses_ranges(&opened.target, Some(&opened.head));
        let file = RemoteFile::new(&opened, held, self.options.assume_unchanged, refuses_ranges);
        Ok(FirstAnswer { opened, held, file })
    }

    /// Retries if the server requests it or was only slow, but not if the server is unreachable;
    /// only a few times if it may fail at ranges and the request without one, which `may_give_up`
    /// permits, is still to come.
    fn open(
        &self,
        client: &Client,
        choose: &Chooser<'_>,
        request: &DescribeRequest<'_>,
        may_give_up: &dyn Fn() -> bool,
    ) -> Result<OpenedUrl, HttpError> {
        let retries = Retries {
            most: self.options.transfer.retries,
            stream: 0,
            emit: request.emit,
            rest: request.cancel,
        };
        let attempt = |tries: &mut u32, _: &mut _| {
            *tries += 1;
            client.open_part(&self.url, choose, request.cancel)
        };
        retries.repeat(&mut 0, attempt, |tries, error| {
            // Each further timeout is as long as the first.
            let has_tried = *tries >= MAX_RANGE_FAILURES || matches!(error, HttpError::Timeout(..));
            let gives_up = has_tried && may_give_up() && error.range_failure().is_some();
            error.first_retry().unless(!request.waits || gives_up)
        })
    }

    /// Returns the mirrors that an answer links to (RFC 6249, section 2).
    fn duplicates(&self, opened: &OpenedUrl) -> Vec<Url> {
        self.linked(opened, opened.head.duplicates().into_iter().map(|link| link.url))
    }

    /// Returns the metalinks that an answer links to (RFC 6249, section 4).
    pub(crate) fn metalinks(&self, opened: &OpenedUrl) -> Vec<Url> {
        self.linked(opened, opened.head.metalinks())
    }

    /// Resolves links of an answer; drops those that would give up encryption.
    fn linked(&self, opened: &OpenedUrl, links: impl IntoIterator<Item = String>) -> Vec<Url> {
        let secure = self.url.scheme() == "https";
        let usable = |url: &Url| url.scheme() == "https" || (url.scheme() == "http" && !secure);
        links.into_iter().filter_map(|link| opened.target.url().join(&link).ok()).filter(usable).collect()
    }

    pub(crate) fn description(&self, answer: &FirstAnswer, known_pace: Option<HeldRate>) -> Description {
        let FirstAnswer { opened, held, file } = answer;
        let first = match *held {
            RangeAnswer::Part { range, .. } => range,
            RangeAnswer::Whole { total } => ByteRange::new(0, total.map_or(u64::MAX, Bytes::get)),
        };
        let (connection, target) = (&opened.connection, &opened.target);
        let in_blocks = self.first_block(known_pace, connection, target).is_some();
        let from_url = || FileName::from_url_path(target.url().path());
        let name = opened.head.file_name().or_else(from_url);
        let ranges = RangeAccess {
            first,
            divisible: in_blocks && !file.whole && file.size.is_some() && file.identity.is_some(),
            resumable: file.identity.is_some()
                && !file.refuses_ranges()
                && (matches!(held, RangeAnswer::Part { .. }) || opened.head.accepts_ranges()),
            whole: file.whole,
        };
        let path = ServerPath {
            rtt: handshake_rtt(connection).unwrap_or_default(),
            first_window: first_window(self.options.transfer.client.recv_buffer, connection.socket()),
            pace: file.pace,
            endpoint: Endpoint::of(target.url()),
            known: self.recall(target.url()).cloned(),
            corrected: None,
        };
        let published = Published {
            duplicates: self.duplicates(opened),
            digest: opened.head.digests().into_iter().max_by_key(|checksum| checksum.algorithm),
            digest_on_request: None,
        };
        let file = FileDescription {
            size: file.size,
            identity: file.identity.clone().filter(|_| file.size.is_some()),
            state: file.state(&opened.head).map(str::to_owned),
            modified: opened.head.last_modified(),
            name: name.as_ref().map(|name| name.as_str().to_owned()),
            is_directory: target.url().path().strip_suffix('/') == Some(self.url.path()),
            shown_content: match held {
                RangeAnswer::Part { .. } => format!("a part of {}", self.shown),
                RangeAnswer::Whole { .. } => format!("{} ({})", self.shown, opened.head.describe_content()),
            },
        };
        Description { file, ranges, path, published }
    }
}

/// Returns the RTT of the connection's handshake.
pub(crate) fn handshake_rtt(connection: &Connection) -> Option<Rtt> {
    tcp_info::read(connection.socket()).ok().and_then(|info| info.rtt())
}
