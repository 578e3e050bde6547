//! Single faults: of a response, the network, the disk, the client.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    UntilClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeFault {
    /// Content and label both begin later than requested by this many bytes.
    Later(u64),
    /// Content and label both begin earlier by this many bytes: the response overlaps present data.
    Earlier(u64),
    /// Content and label end later by this many bytes.
    Longer(u64),
    /// Half of the requested range, labelled correctly: allowed.
    Shorter,
    /// The total size differs by this.
    Total(i64),
    /// The total size is `*`: allowed.
    NoTotal,
    Garbage,
    Missing,
}

/// A login page instead of the file, with status 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) framing: Framing,
    pub(crate) as_long_as_the_file: bool,
    pub(crate) by_redirect: bool,
}

/// Faults of one response. Places are in thousandths of its body, times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Page(Page),
    /// A status, and Retry-After in seconds.
    Status(u16, Option<u32>),
    Range(RangeFault),
    /// 416 with a Content-Range whose size differs by this, or without one.
    NotSatisfiable(Option<i64>),
    Close(u64),
    Reset(u64),
    /// Nothing arrives at this place for this time.
    Stall(u64, u64),
    /// A few bytes at a time arrive at this place for this time.
    Drip(u64, u64),
    /// More bytes than announced, by this many.
    Extra(usize),
    /// Bytes that are no response head.
    GarbageHead(u8),
    /// The connection closes before the response.
    HangUp,
    /// The whole file with status 200 for any request.
    WholeFile,
    /// A partial response with chunked coding: allowed.
    ChunkedPart,
    Stray(usize),
}

impl Fault {
    /// Returns whether the response's head arrives and is truthful about the file.
    pub(crate) fn names_the_file(self) -> bool {
        matches!(self, Self::Close(_) | Self::Stall(..) | Self::Drip(..) | Self::ChunkedPart)
    }

    /// Returns whether a transfer with retries left must survive the fault.
    pub(crate) fn survivable(self) -> bool {
        match self {
            Self::Reset(_) | Self::HangUp | Self::Range(RangeFault::Shorter | RangeFault::NoTotal) => true,
            // A stray is survived if it follows a response of the right build, with a strong ETag.
            Self::Status(429 | 503, _) | Self::Stray(_) => true,
            _ => self.names_the_file(),
        }
    }
}

/// A fault of the bytes between client and server, at an offset of one direction of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelayFault {
    /// Number of the connection in the run, from 0.
    pub(crate) connection: usize,
    pub(crate) to_client: bool,
    pub(crate) at: u64,
    pub(crate) what: RelayFaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayFaultKind {
    Flip(u8),
    Close,
    Reset,
    /// Nothing is forwarded for this many milliseconds.
    Stall(u64),
    /// The request is answered with this status, and the connection closes.
    Refuse(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// After this many bytes of content were served or accepted.
    Bytes(u64),
    Millis(u64),
    /// This many milliseconds after this many bytes: during the sync and rename of the file.
    Later(u64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Kill(When),
    Interrupt(When),
}

/// A disk fault, after `at` bytes were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskFault {
    pub(crate) at: u64,
    pub(crate) what: DiskFaultKind,
}

/// Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFaultKind {
    /// The disk is filled except for this many bytes.
    Full(u64),
    /// Every write blocks for this time.
    Hang(u64),
    /// Most writes block for this time.
    Slow(u64),
    /// Every operation fails from here on (EIO); unsynced data is lost.
    PowerCut,
    /// Unsynced data is lost after the run.
    PowerCutAfter,
}

impl DiskFault {
    pub(crate) const POWER_CUT_AFTER: Self = Self { at: u64::MAX, what: DiskFaultKind::PowerCutAfter };

    pub(crate) fn cuts_power(self) -> bool {
        matches!(self.what, DiskFaultKind::PowerCut | DiskFaultKind::PowerCutAfter)
    }
}
