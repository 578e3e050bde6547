//! Single faults: of a response, the network, the disk, the client.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    UntilClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeFault {
    Later(u64),   // Content and label both begin later than requested by this many bytes
    Earlier(u64), // Content and label both begin earlier by this many bytes: the response overlaps present data
    Longer(u64),  // Content and label end later by this many bytes
    Shorter,      // Half of the requested range, labelled correctly: allowed
    Total(i64),   // The total size differs by this
    NoTotal,      // The total size is `*`: allowed
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
    Status(u16, Option<u32>), // A status, and Retry-After in seconds
    Range(RangeFault),
    NotSatisfiable(Option<i64>), // 416 with a Content-Range whose size differs by this, or without one
    Close(u64),
    Reset(u64),
    Stall(u64, u64), // Nothing arrives at this place for this time
    Drip(u64, u64),  // A few bytes at a time arrive at this place for this time
    Extra(usize),    // More bytes than announced, by this many
    GarbageHead(u8), // Bytes that are no response head
    HangUp,          // The connection closes before the response
    WholeFile,       // The whole file with status 200 for any request
    ChunkedPart,     // A partial response with chunked coding: allowed
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
    pub(crate) connection: usize, // Number of the connection in the run, from 0
    pub(crate) to_client: bool,
    pub(crate) at: u64,
    pub(crate) what: RelayFaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayFaultKind {
    Flip(u8),
    Close,
    Reset,
    Stall(u64),  // Nothing is forwarded for this many milliseconds
    Refuse(u16), // The request is answered with this status, and the connection closes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Bytes(u64), // After this many bytes of content were served or accepted
    Millis(u64),
    Later(u64, u64), // This many milliseconds after this many bytes: during the sync and rename of the file
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
    Full(u64),     // The disk is filled except for this many bytes
    Hang(u64),     // Every write blocks for this time
    Slow(u64),     // Most writes block for this time
    PowerCut,      // Every operation fails from here on (EIO); unsynced data is lost
    PowerCutAfter, // Unsynced data is lost after the run
}

impl DiskFault {
    pub(crate) const POWER_CUT_AFTER: Self = Self { at: u64::MAX, what: DiskFaultKind::PowerCutAfter };

    pub(crate) fn cuts_power(self) -> bool {
        matches!(self.what, DiskFaultKind::PowerCut | DiskFaultKind::PowerCutAfter)
    }
}
