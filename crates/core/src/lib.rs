//! Longhaul's pure logic: no I/O, no clock, no threads.
//!
//! Every function depends only on its arguments; the current time is an argument `now`. The code
//! therefore runs unchanged in a transfer, in the lab and in simulated time.
//!
//! ```
//! use longhaul_core::units::{Bytes, Rate, Rtt};
//!
//! // The bytes in flight on a path of 10 Gbit/s and 200 ms: 250 MB.
//! let (rate, rtt): (Rate, Rtt) = ("10Gbit".parse()?, "200ms".parse()?);
//! assert_eq!(rate.bdp(rtt), Bytes::new(250_000_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`schedule`] leases ranges of a file to workers; [`tune`] holds the controllers; [`proto`]
//! parses and writes protocols; [`event`] holds the events of a job; [`failure`] classifies errors;
//! [`identity`] identifies the states of a file.

#![forbid(unsafe_code)]

pub mod advice;
pub mod buffer_plan;
pub mod checksum;
pub mod checksum_list;
pub mod event;
pub mod failure;
pub mod files_at_once;
pub mod happy_eyeballs;
pub mod host_check;
pub mod identity;
pub mod initial_window;
pub mod limit;
pub mod pace;
pub mod probe;
pub mod proto;
pub mod queue_admission;
pub mod ranges;
pub mod retry;
pub mod schedule;
pub mod tcp_info;
pub mod telemetry;
pub mod tune;
pub mod units;
