//! Longhaul's pure logic: no I/O, no clock, no threads.
//!
//! Everything here is a function of its arguments; where time matters, `now` is an argument. The
//! same code therefore runs in a transfer, in the lab and in virtual time.
//!
//! ```
//! use longhaul_core::units::{Bytes, Rate, Rtt};
//!
//! // What a path of 10 Gbit/s at 200 ms holds in flight: 250 MB.
//! let (rate, rtt): (Rate, Rtt) = ("10Gbit".parse()?, "200ms".parse()?);
//! assert_eq!(rate.bdp(rtt), Bytes::new(250_000_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`schedule`] leases ranges of a file to workers; [`tune`] holds the controllers; [`proto`] parses and writes protocols;
//! [`event`] is what a job reports; [`identity`] says which answers are of one file.

#![forbid(unsafe_code)]

pub mod admission;
pub mod advice;
pub mod checksum;
pub mod checksum_list;
pub mod event;
pub mod happy_eyeballs;
pub mod host_check;
pub mod identity;
pub mod initial_window;
pub mod limit;
pub mod pace;
pub mod plan;
pub mod probe;
pub mod proto;
pub mod queue_plan;
pub mod ranges;
pub mod retry;
pub mod schedule;
pub mod tcp_info;
pub mod telemetry;
pub mod tune;
pub mod units;
