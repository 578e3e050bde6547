//! One transfer, as a series of rounds.
//!
//! A [`Round`] is one attempt to move what is missing of a file: it owns the schedule of ranges and
//! the running streams. By a [`Stream`], a worker leases ranges, and delivers ([`Receiving`]) or
//! sends ([`Sending`]) their bytes. [`TransferProgress`] counts over all rounds.

mod connection;
mod direction;
pub(crate) mod error;
mod intake;
mod progress;
pub(crate) mod recv_buffer;
mod round;
mod running_streams;
mod shared_schedule;
mod stream;
mod transfer_options;

pub(crate) use direction::{Direction, Receiving, Sending};
pub(crate) use intake::Intake;
pub(crate) use progress::{SourceLiveness, SourceProgress, TransferProgress, Waits};
pub(crate) use round::{Round, RoundEnd};
pub(crate) use running_streams::StreamHandle;
pub(crate) use shared_schedule::SharedSchedule;
pub(crate) use stream::Stream;
pub use transfer_options::{AptSettings, StreamCap, Streams, TransferOptions};
