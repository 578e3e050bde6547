//! One transfer: what its threads share.
//!
//! [`TransferState`] owns the schedule of ranges, the way to the disk and the failure that ends the transfer. A [`Stream`] is how
//! a source's worker leases ranges and delivers bytes.

pub(crate) mod error;
pub(crate) mod recv_buffer;
mod shared_schedule;
mod state;
mod stream;
mod streams_choice;

pub(crate) use shared_schedule::SharedSchedule;
pub(crate) use state::{SourceProgress, TransferState};
pub(crate) use stream::{Stream, StreamHandle, StreamOptions};
pub use streams_choice::{AptSettings, Streams};
