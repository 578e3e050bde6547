//! Longhaul's pure logic: no I/O, no clock, no threads.
//!
//! Everything here is a function of its arguments; where time matters, `now` is an argument. The
//! same code therefore runs in a transfer, in the lab and in virtual time.

#![forbid(unsafe_code)]

pub mod admission;
pub mod advice;
pub mod checksum;
pub mod event;
pub mod happy_eyeballs;
pub mod identity;
pub mod initial_window;
pub mod limit;
pub mod pace;
pub mod plan;
pub mod proto;
pub mod ranges;
pub mod retry;
pub mod schedule;
pub mod tcp_info;
pub mod telemetry;
pub mod tune;
pub mod units;
