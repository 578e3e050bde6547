//! Single faults: of a response, the network, the disk, the client.

/// Delimitation of the body of a 200 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    UntilClose,
}

/// Faults of a Content-Range.
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

/// Faults of one response; `at` is in thousandths of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A login page instead of the file, with status 200.
    Page {
        framing: Framing,
        as_long_as_the_file: bool,
        by_redirect: bool,
    },
    Status {
        code: u16,
        retry_after: Option<u32>,
    },
    Range(RangeFault),
    /// 416 with a Content-Range whose size differs by this, or without one.
    NotSatisfiable(Option<i64>),
    Close {
        at: u64,
    },
    Reset {
        at: u64,
    },
    Stall {
        at: u64,
        millis: u64,
    },
    /// A few bytes at a time, for this long.
    Drip {
        at: u64,
        millis: u64,
    },
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
    /// A response of another build.
    Stray(usize),
}

impl Fault {
    /// Returns whether the response's head arrives and is truthful about the file.
    pub(crate) fn names_the_file(self) -> bool {
        matches!(self, Self::Close { .. } | Self::Stall { .. } | Self::Drip { .. } | Self::ChunkedPart)
    }

    /// Returns whether a transfer with retries left must survive the fault.
    pub(crate) fn survivable(self) -> bool {
        match self {
            Self::Close { .. }
            | Self::Reset { .. }
            | Self::Stall { .. }
            | Self::Drip { .. }
            | Self::HangUp
            | Self::ChunkedPart
            | Self::Range(RangeFault::Shorter | RangeFault::NoTotal) => true,
            Self::Status { code, .. } => matches!(code, 429 | 503),
            // If it follows a response of the right build, with a strong ETag.
            Self::Stray(_) => true,
            _ => false,
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
    Stall(u64),
    /// The request is answered with this status, and the connection closes.
    Refuse(u16),
}

/// A moment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// After this many bytes of content were served or accepted.
    Bytes(u64),
    Millis(u64),
    /// This many milliseconds after this many bytes: during the sync and rename of the file.
    Later {
        bytes: u64,
        millis: u64,
    },
}

/// How a run is stopped from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Kill(When),
    Interrupt(When),
}

/// A disk fault, after this many bytes were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The disk is filled except for this many bytes.
    Full { at: u64, leave: u64 },
    /// Every write blocks for this many milliseconds.
    Hang { at: u64, millis: u64 },
    /// Most writes block for this many milliseconds.
    Slow { at: u64, millis: u64 },
    /// Every operation fails from here on (EIO); unsynced data is lost.
    PowerCut { at: u64 },
    /// Unsynced data is lost after the run.
    PowerCutAfter,
}

impl DiskFault {
    /// Returns the number of bytes served before the fault.
    pub(crate) fn at(self) -> u64 {
        match self {
            Self::Full { at, .. } | Self::Hang { at, .. } | Self::Slow { at, .. } | Self::PowerCut { at } => {
                at
            }
            Self::PowerCutAfter => u64::MAX,
        }
    }

    pub(crate) fn cuts_power(self) -> bool {
        matches!(self, Self::PowerCut { .. } | Self::PowerCutAfter)
    }
}
