//! The single things that can go wrong: with an answer, on the way, with the disk, with the client itself.

/// How a body that answers with 200 is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    UntilClose,
}

/// What is wrong with a Content-Range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeFault {
    /// Content and label both begin so many bytes later than asked for.
    Later(u64),
    /// Content and label both begin so many bytes earlier: the answer overlaps what is there.
    Earlier(u64),
    /// Content and label end so many bytes late.
    Longer(u64),
    /// Half of what was asked for, labelled so: allowed.
    Shorter,
    /// The total is another.
    Total(i64),
    /// The total is `*`: allowed.
    NoTotal,
    Garbage,
    Missing,
}

/// What goes wrong with one answer; `at` is in thousandths of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A login page in place of the file, with 200.
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
    /// 416; its Content-Range tells the size with this difference, or nothing.
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
    /// A few bytes at a time for so long.
    Drip {
        at: u64,
        millis: u64,
    },
    /// So many bytes more than announced.
    Extra(usize),
    /// Bytes that are no response head.
    GarbageHead(u8),
    /// The connection ends before the answer.
    HangUp,
    /// All of the file with 200, whatever was asked for.
    WholeFile,
    /// A part in chunks: allowed.
    ChunkedPart,
    /// An answer of another build.
    Stray(usize),
}

impl Fault {
    /// Returns whether the answer's head is the file's all the same, and arrives.
    pub(crate) fn names_the_file(self) -> bool {
        matches!(self, Self::Close { .. } | Self::Stall { .. } | Self::Drip { .. } | Self::ChunkedPart)
    }

    /// Returns whether a transfer with retries left must survive it.
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
            // Where it comes after an answer of the right build, and under a strong ETag.
            Self::Stray(_) => true,
            _ => false,
        }
    }
}

/// What happens to the bytes between client and server, at an offset of one direction of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// Which connection of the run, from 0.
    pub(crate) connection: usize,
    pub(crate) to_client: bool,
    pub(crate) at: u64,
    pub(crate) what: Meddling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meddling {
    Flip(u8),
    Close,
    Reset,
    Stall(u64),
    /// The request is answered with this status, and the connection closed.
    Refuse(u16),
}

/// A moment in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Once the server has sent, or taken, so many bytes of content.
    Bytes(u64),
    Millis(u64),
    /// So many milliseconds after so many bytes: while the file is synced and gets its name.
    Later {
        bytes: u64,
        millis: u64,
    },
}

/// What ends a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Kill(When),
    Interrupt(When),
}

/// What the disk does, once so many bytes were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// Others take all but so many bytes.
    Full { at: u64, leave: u64 },
    /// Every write waits for so long.
    Hang { at: u64, millis: u64 },
    /// Writes wait most of the time for so long.
    Slow { at: u64, millis: u64 },
    /// Every operation fails from here on (EIO); what was not synced is lost.
    PowerCut { at: u64 },
    /// What was not synced is lost once the run has ended.
    PowerCutAfter,
}

impl DiskFault {
    /// Returns how many bytes are served before.
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
