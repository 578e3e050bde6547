//! The file on the server.

use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::pace::{PACE_HEADER, Pace};
use longhaul_core::proto::http::{RangeRequest, ResponseHead, Validator};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

use crate::source::http::{Opened, ResolvedUrl};

/// The file as the first answer described it; every later answer must agree.
pub(super) struct Remote {
    /// Where it was opened, after redirects.
    pub(super) place: ResolvedUrl,
    /// The same without secrets, for messages.
    pub(super) shown: String,
    pub(super) size: Option<Bytes>,
    pub(super) validator: Option<Validator>,
    /// Whether the first answer held all of it: then the server may know no ranges.
    pub(super) whole: bool,
    /// Whether the server says that it paces what it sends.
    pub(super) paces: bool,
    /// Whether the server answers If-Range as if the file had changed.
    ///
    /// Apache does for a minute after the change, where it is asked with the date; others always do. The marks of each
    /// answer are compared then.
    if_range_refused: AtomicBool,
    marks: Marks,
}

/// What the server said of the file's state, fit for If-Range or not.
type Marks = [Option<String>; 2];

impl Remote {
    /// Describes the file that `opened` is the answer for.
    ///
    /// `vouched` is the validator that a 206 has vouched for, where it names none itself.
    pub(super) fn new(
        opened: &Opened,
        size: Option<Bytes>,
        whole: bool,
        vouched: Option<&Validator>,
    ) -> Self {
        let Opened { target, head, .. } = opened;
        let validator = head.validator().or_else(|| vouched.filter(|_| marks(head) == [None, None]).cloned());
        let (place, shown) = (target.clone(), target.safe_url().to_string());
        let paces = head.text(PACE_HEADER).is_some_and(|pace| pace != Pace::Off.header());
        let if_range_refused = AtomicBool::new(false);
        Self { place, shown, size, validator, whole, paces, if_range_refused, marks: marks(head) }
    }

    /// Returns the request for a part; `None` for all of a file of unknown length, which has no parts.
    pub(super) fn request(&self, part: ByteRange) -> Option<RangeRequest> {
        self.size.and_then(|_| RangeRequest::of(part))
    }

    /// Returns what If-Range is asked with.
    pub(super) fn if_range(&self) -> Option<Validator> {
        self.validator.clone().filter(|_| !self.if_range_refused.load(Ordering::Relaxed))
    }

    /// Asks without If-Range from now on.
    pub(super) fn refuse_if_range(&self) {
        self.if_range_refused.store(true, Ordering::Relaxed);
    }

    /// Returns whether `head` is of the same state of the file.
    ///
    /// A strong ETag decides alone. Else everything must be as it was: even a weak tag or a fresh date
    /// that differs says that the file has changed. A 206 that answers a request with If-Range vouches for the file itself,
    /// and may leave out all but the ETag (RFC 9110, section 15.3.7).
    pub(super) fn is_same(&self, head: &ResponseHead, asked_if_same: bool) -> bool {
        let vouched = head.status() == 206 && asked_if_same;
        let now = marks(head);
        match &self.validator {
            Some(Validator::ETag(_)) => now[0] == self.marks[0],
            _ => self.marks.iter().zip(&now).all(|(was, now)| was == now || (vouched && now.is_none())),
        }
    }
}

/// Tags are compared weakly (RFC 9110, section 8.8.3.2): a server may call one weak only while the file is fresh.
fn marks(head: &ResponseHead) -> Marks {
    ["etag", "last-modified"]
        .map(|name| head.text(name).map(|text| text.strip_prefix("W/").unwrap_or(text).to_owned()))
}
