//! One transfer: the state that its threads share.
//!
//! [`TransferState`] owns the schedule of ranges and the failure that ends the transfer, in either
//! direction. By a [`Stream`], a worker leases ranges, and delivers or sends their bytes.

pub(crate) mod error;
mod intake;
mod outcome;
pub(crate) mod recv_buffer;
mod running_streams;
mod shared_schedule;
mod state;
mod stream;
mod stream_handle;
mod transfer_options;

pub(crate) use intake::Intake;
pub use outcome::Outcome;
pub(crate) use shared_schedule::SharedSchedule;
pub(crate) use state::{SourceProgress, TransferState, Waits};
pub(crate) use stream::{Stream, StreamOptions};
pub(crate) use stream_handle::StreamHandle;
pub use transfer_options::{AptSettings, Streams, TransferOptions};
