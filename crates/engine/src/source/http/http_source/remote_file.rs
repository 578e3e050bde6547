//! The file on an HTTP server as described by its first answer; every later answer must agree.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::failure::Failure;
use longhaul_core::identity::Identity;
use longhaul_core::pace::{PACE_HEADER, Pace, PaceRequest};
use longhaul_core::proto::http::{Framing, RangeAnswer, RangeRequest, ResponseHead, Validator};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use crate::source::http::client::OpenedUrl;

/// The described file.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    pub(crate) size: Option<Bytes>,
    /// The identity under which ranges of several answers are combined; `None` if they must not be
    /// combined.
    pub(crate) identity: Option<Identity>,
    /// Whether the first answer contained the whole file although a range was requested: the server
    /// may not support ranges.
    pub(crate) whole: bool,
    /// The pace in force, if the server states that it paces its sending.
    pub(crate) pace: Option<Pace>,
    /// Whether the server refuses requests with a range, so that none is sent.
    refuses_ranges: AtomicBool,
    /// Whether the whole file was requested because the server failed at ranges.
    has_fallen_back: AtomicBool,
    /// The content coding, in which the file is saved.
    coding: Option<String>,
    /// Whether the server answers If-Range as if the file had changed.
    ///
    /// Apache does so for a minute after a change if asked with the date; other servers always do.
    /// Then the validators of each answer are compared.
    if_range_refused: AtomicBool,
    validators: SentValidators,
}

/// ETag and Last-Modified as sent by the server, whether usable for If-Range or not.
type SentValidators = [Option<String>; 2];

/// The relation of an answer to a range request to the described file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// The answer contains this range of the file.
    Part(ByteRange),
    /// The answer contains the whole file, to be received from its start.
    FromStart,
    /// The answer is the whole file, possibly because the server does not support If-Range.
    IfRangeRefused,
    /// The answer is the whole file, unchanged.
    RangesIgnored,
    /// The answer is of another file or another version.
    OtherFile,
}

impl RemoteFile {
    /// Describes the file of the answer `opened`.
    pub(crate) fn new(
        opened: &OpenedUrl,
        held: RangeAnswer,
        assume_unchanged: bool,
        refuses_ranges: bool,
    ) -> Self {
        let (head, coding) = (&opened.head, opened.head.content_coding());
        let (whole, size) = match held {
            RangeAnswer::Whole { total } => (true, total),
            RangeAnswer::Part { total, .. } => (false, total),
        };
        // A 206 that answers If-Range may omit a date, but not an ETag (RFC 9110, section 15.3.7).
        let dated = |v: &&Validator| matches!(v, Validator::LastModified(_)) && !whole;
        let vouched = opened.requested.as_ref().and_then(RangeRequest::if_range).filter(dated);
        let bare = validators(head) == [None, None] && coding.is_none();
        let validator = head.validator().or_else(|| vouched.filter(|_| bare).cloned());
        let assumed = assume_unchanged.then_some(Identity::AssumedUnchanged);
        let pace = head.text(PACE_HEADER).and_then(|pace| PaceRequest::parse(pace).ok());
        Self {
            size,
            identity: validator.map(Identity::from).or(assumed),
            whole,
            pace: pace.map(|stated| stated.pace).filter(|pace| *pace != Pace::Off),
            refuses_ranges: AtomicBool::new(refuses_ranges),
            has_fallen_back: AtomicBool::new(false),
            coding,
            if_range_refused: AtomicBool::new(false),
            validators: validators(head),
        }
    }

    /// Returns the server's tag or strong date of the file that `head` begins; a later run compares
    /// it. `None` if the end of the connection alone marks that of the file: the file here may be
    /// cut off.
    pub(crate) fn state(&self, head: &ResponseHead) -> Option<&str> {
        let [tag, date] = &self.validators;
        let is_strong = matches!(self.identity, Some(Identity::LastModified(_)));
        let state = tag.as_deref().or_else(|| date.as_deref().filter(|_| is_strong));
        state.filter(|_| head.framing() != Ok(Framing::UntilClose))
    }

    /// Returns the request for a range; `None` for a file that is sent in one answer only.
    pub(crate) fn request(&self, part: ByteRange) -> Option<RangeRequest> {
        let size = self.size.filter(|_| !self.refuses_ranges())?;
        if self.identity.is_some() {
            RangeRequest::of(part)
        } else {
            self.whole_range(size).and_then(RangeRequest::of)
        }
    }

    /// Returns whether the server refuses requests with a range.
    pub(crate) fn refuses_ranges(&self) -> bool {
        self.refuses_ranges.load(Ordering::Relaxed)
    }

    /// Requests the whole file from now on; returns whether that is new.
    pub(crate) fn refuse_ranges(&self) -> bool {
        !self.refuses_ranges.swap(true, Ordering::Relaxed)
    }

    /// Requests the whole file from now on, as its first answer contained; returns whether that is
    /// new.
    pub(crate) fn give_up_ranges(&self) -> bool {
        self.whole && self.refuse_ranges()
    }

    /// Returns whether the missing ranges of the file can be taken from an answer with the whole
    /// file.
    pub(crate) fn is_recognised_whole(&self) -> bool {
        self.identity.is_some() && self.size.is_some()
    }

    /// Returns whether the whole file may be requested because the server failed at ranges: once
    /// only.
    pub(crate) fn falls_back(&self) -> bool {
        let may = self.is_recognised_whole() && !self.refuses_ranges();
        may && !self.has_fallen_back.swap(true, Ordering::Relaxed)
    }

    /// Returns the range for requesting a whole file without identity, if its first answer was of a
    /// range: the server may answer other requests differently.
    fn whole_range(&self, size: Bytes) -> Option<ByteRange> {
        (self.identity.is_none() && !self.whole).then(|| ByteRange::new(0, size.get()))
    }

    /// Returns the validator for If-Range.
    pub(crate) fn if_range(&self) -> Option<Validator> {
        let identity = self.identity.as_ref().filter(|_| !self.if_range_refused.load(Ordering::Relaxed));
        identity.and_then(Identity::if_range)
    }

    /// Disables If-Range for further requests.
    pub(crate) fn refuse_if_range(&self) {
        self.if_range_refused.store(true, Ordering::Relaxed);
    }

    /// Returns the relation of an answer to the file; `with_if_range` is whether the request had
    /// If-Range.
    pub(crate) fn agreement(
        &self,
        head: &ResponseHead,
        answer: RangeAnswer,
        with_if_range: bool,
    ) -> Agreement {
        let same = self.is_same(head, with_if_range);
        match answer {
            // No earlier bytes are kept: any version of this size is acceptable.
            RangeAnswer::Whole { total } if self.identity.is_none() && total == self.size => {
                Agreement::FromStart
            }
            RangeAnswer::Part { range, .. }
                if self.size.and_then(|size| self.whole_range(size)) == Some(range) =>
            {
                Agreement::FromStart
            }
            RangeAnswer::Part { .. } if self.identity.is_none() => Agreement::OtherFile,
            _ if !same => Agreement::OtherFile,
            // The described answer may have been in chunks.
            RangeAnswer::Whole { total } if self.whole && (total == self.size || self.size.is_none()) => {
                Agreement::FromStart
            }
            RangeAnswer::Whole { .. } if self.whole => Agreement::OtherFile,
            RangeAnswer::Whole { total: Some(total) } if Some(total) != self.size => Agreement::OtherFile,
            // Nothing shows that a body of unknown length is the file.
            RangeAnswer::Whole { total: None } if self.identity == Some(Identity::AssumedUnchanged) => {
                Agreement::OtherFile
            }
            RangeAnswer::Whole { .. } if with_if_range => Agreement::IfRangeRefused,
            RangeAnswer::Whole { .. } => Agreement::RangesIgnored,
            RangeAnswer::Part { range, total } if total.is_none_or(|total| Some(total) == self.size) => {
                Agreement::Part(range)
            }
            RangeAnswer::Part { .. } => Agreement::OtherFile,
        }
    }

    /// Returns whether `head` is of the described version of the file.
    ///
    /// A strong ETag alone decides. Otherwise both validators must be unchanged: even a different
    /// weak tag or date shows a change. A 206 to a request with If-Range guarantees the version,
    /// and may omit all but the ETag (RFC 9110, section 15.3.7).
    fn is_same(&self, head: &ResponseHead, with_if_range: bool) -> bool {
        let vouched = head.status() == 206 && with_if_range;
        // Both codings of a file may have one date, and with faulty servers one tag.
        let coding = head.content_coding();
        if coding != self.coding && !(vouched && coding.is_none()) {
            return false;
        }
        let now = validators(head);
        match &self.identity {
            Some(Identity::AssumedUnchanged) => true,
            Some(Identity::ETag(_)) => now[0] == self.validators[0],
            _ => self.validators.iter().zip(&now).all(|(was, now)| was == now || (vouched && now.is_none())),
        }
    }

    /// Returns the difference that shows that `head` is of another file.
    pub(crate) fn difference(&self, head: &ResponseHead) -> String {
        let name = |validators: &SentValidators| {
            let known = validators.iter().flatten().next();
            known.map_or_else(
                || "an unidentified state".to_owned(),
                |text| text.replace(char::is_control, "?"),
            )
        };
        let (was, mut now) = (name(&self.validators), name(&validators(head)));
        if was == now {
            let is_coded = head.content_coding() != self.coding;
            now.push_str(if is_coded { " in another content coding" } else { " of another size" });
        }
        format!("{was} became {now}: {}", head.describe_content())
    }
}

/// Reads the validators of a head. Tags are compared weakly (RFC 9110, section 8.8.3.2), because a
/// server may mark a tag as weak only while the file is new.
fn validators(head: &ResponseHead) -> SentValidators {
    ["etag", "last-modified"]
        .map(|name| head.text(name).map(|text| text.strip_prefix("W/").unwrap_or(text).to_owned()))
}

/// Parses the range that the answer `opened` contains.
pub(crate) fn held_by(opened: &OpenedUrl) -> Result<RangeAnswer, Failure> {
    RangeAnswer::of(&opened.head, opened.requested.as_ref()).map_err(|source| {
        crate::source::http::error::bad_range(&opened.target.safe_url().to_string(), &source)
    })
}
