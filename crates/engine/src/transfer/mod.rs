//! One transfer: what its threads share.
//!
//! [`TransferState`] owns the schedule of ranges and the failure that ends the transfer, [`FileTransfer`] also the way to the
//! disk. A [`Stream`] is how a worker leases ranges, and delivers bytes or sends them.

pub(crate) mod error;
mod intake;
pub(crate) mod recv_buffer;
mod shared_schedule;
mod state;
mod stream;
mod stream_handle;
mod streams_choice;

pub(crate) use intake::Intake;
pub(crate) use shared_schedule::SharedSchedule;
pub(crate) use state::{FileTransfer, SourceProgress, TransferState, Waits};
pub(crate) use stream::{Stream, StreamOptions};
pub(crate) use stream_handle::StreamHandle;
pub use streams_choice::{AptSettings, Streams};
