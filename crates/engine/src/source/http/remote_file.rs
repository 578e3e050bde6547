//! The file on an HTTP server, as its first answer described it; every later answer must agree.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::identity::Identity;
use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::proto::http::{RangeAnswer, RangeRequest, ResponseHead, Validator};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use super::client::Opened;
use super::http_source::SourceOptions;
use crate::transfer::error::SourceError;

/// The described file.
#[derive(Debug)]
pub(super) struct RemoteFile {
    pub(super) size: Option<Bytes>,
    /// What ranges of several answers are combined under; `None` where they must not be.
    pub(super) identity: Option<Identity>,
    /// Whether the first answer held all of it although a part was asked for: then the server may know no ranges.
    pub(super) whole: bool,
    /// Whether the server says that it paces what it sends.
    pub(super) paced: bool,
    /// Whether the server answers If-Range as if the file had changed.
    ///
    /// Apache does so for a minute after the change where it is asked with the date; other servers always do. The
    /// validators of each answer are compared then.
    if_range_refused: AtomicBool,
    validators: Validators,
}

/// ETag and Last-Modified as the server sent them, fit for If-Range or not.
type Validators = [Option<String>; 2];

/// How an answer to a request for a part relates to the described file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Agreement {
    /// It holds this part of the file.
    Part(ByteRange),
    /// It holds all of the file, which is to be received from its start.
    FromStart,
    /// The whole file came, perhaps because the server takes no If-Range.
    IfRangeRefused,
    /// The whole file came, unchanged.
    RangesIgnored,
    /// It is of another file, or of another state of this one.
    OtherFile,
}

impl RemoteFile {
    /// Describes the file that `opened` is the answer for.
    pub(super) fn new(opened: &Opened, held: RangeAnswer, options: &SourceOptions) -> Self {
        let head = &opened.head;
        let (whole, size) = match held {
            RangeAnswer::Whole { total } => (true, total),
            RangeAnswer::Part { total, .. } => (false, total),
        };
        // A date may be left out of a 206 that answers If-Range; an ETag may not (RFC 9110, section 15.3.7).
        let dated = |v: &&Validator| matches!(v, Validator::LastModified(_)) && !whole;
        let vouched = opened.asked.as_ref().and_then(RangeRequest::if_range).filter(dated);
        let bare = validators(head) == [None, None];
        let validator = head.validator().or_else(|| vouched.filter(|_| bare).cloned());
        let assumed = options.assume_unchanged.then_some(Identity::AssumedUnchanged);
        Self {
            size,
            identity: validator.map(Identity::from).or(assumed),
            whole,
            paced: head.text(PACE_HEADER).is_some_and(|pace| pace != Pace::Off.header()),
            if_range_refused: AtomicBool::new(false),
            validators: validators(head),
        }
    }

    /// Returns the request for a part; `None` for all of a file that comes in one answer only.
    pub(super) fn request(&self, part: ByteRange) -> Option<RangeRequest> {
        let size = self.size?;
        if self.identity.is_some() {
            RangeRequest::of(part)
        } else {
            self.whole_range(size).and_then(RangeRequest::of)
        }
    }

    /// Returns the range that all of a file without identity is asked for by: the one that its first answer was of, for the
    /// server may answer nothing else alike.
    fn whole_range(&self, size: Bytes) -> Option<ByteRange> {
        (self.identity.is_none() && !self.whole).then(|| ByteRange::new(0, size.get()))
    }

    /// Returns what If-Range is asked with.
    pub(super) fn if_range(&self) -> Option<Validator> {
        let identity = self.identity.as_ref().filter(|_| !self.if_range_refused.load(Ordering::Relaxed));
        identity.and_then(Identity::if_range)
    }

    /// Asks without If-Range from now on.
    pub(super) fn refuse_if_range(&self) {
        self.if_range_refused.store(true, Ordering::Relaxed);
    }

    /// Says what an answer holds, which was asked for `with_if_range` or without.
    pub(super) fn agreement(
        &self,
        head: &ResponseHead,
        answer: RangeAnswer,
        with_if_range: bool,
    ) -> Agreement {
        let same = self.is_same(head, with_if_range);
        match answer {
            // Nothing of an earlier answer is kept: any state of the same size will do.
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
            RangeAnswer::Whole { total } if self.whole && total == self.size => Agreement::FromStart,
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

    /// Returns whether `head` is of the same state of the file.
    ///
    /// A strong ETag decides alone. Else both validators must be as they were: even a weak tag or a fresh date that differs says
    /// that the file has changed. A 206 that answers a request with If-Range vouches for the file itself, and may leave out all
    /// but the ETag (RFC 9110, section 15.3.7).
    fn is_same(&self, head: &ResponseHead, with_if_range: bool) -> bool {
        let vouched = head.status() == 206 && with_if_range;
        let now = validators(head);
        match &self.identity {
            Some(Identity::AssumedUnchanged) => true,
            Some(Identity::ETag(_)) => now[0] == self.validators[0],
            _ => self.validators.iter().zip(&now).all(|(was, now)| was == now || (vouched && now.is_none())),
        }
    }

    /// Describes what shows that `head` is of another file.
    pub(super) fn difference(&self, head: &ResponseHead) -> String {
        let name = |validators: &Validators| {
            let known = validators.iter().flatten().next();
            known.map_or_else(
                || "an unidentified state".to_owned(),
                |text| text.replace(char::is_control, "?"),
            )
        };
        let (was, mut now) = (name(&self.validators), name(&validators(head)));
        if was == now {
            now.push_str(" of another size");
        }
        format!("{was} became {now}: {}", head.describe_content())
    }
}

/// Reads the validators of a head; tags are compared weakly (RFC 9110, section 8.8.3.2): a server may call one weak only while the
/// file is fresh.
fn validators(head: &ResponseHead) -> Validators {
    ["etag", "last-modified"]
        .map(|name| head.text(name).map(|text| text.strip_prefix("W/").unwrap_or(text).to_owned()))
}

/// Reads what the answer to `asked` holds.
pub(super) fn held_by(opened: &Opened) -> Result<RangeAnswer, SourceError> {
    RangeAnswer::of(&opened.head, opened.asked.as_ref())
        .map_err(|source| super::source_error::bad_range(&opened.target.safe_url().to_string(), &source))
}
