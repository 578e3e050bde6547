//! The streams to one peer: their number, and their threads.

mod count_control;
mod interval_meter;
mod refused_streams;
mod run_stream;
mod stream_set;

pub(crate) use count_control::{CountControl, CountStart, chosen};
pub(crate) use stream_set::{Starter, StreamSet};
