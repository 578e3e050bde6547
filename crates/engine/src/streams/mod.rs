//! The streams to one peer: their number, and their threads.

mod interval_meter;
mod run_stream;
mod stream_count;
mod stream_set;

pub(crate) use stream_count::{CountControl, CountStart, chosen};
pub(crate) use stream_set::{Starter, StreamSet};
