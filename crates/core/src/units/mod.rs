//! Quantities with their units: sizes in bytes (IEC), rates in bits per second (SI), round-trip times.
//!
//! No bare integer stands for a size, a rate or a time across a function's edge.

mod bytes;
mod number;
mod rate;
mod rtt;
pub mod seconds;

pub use bytes::Bytes;
pub use number::ParseUnitError;
pub use rate::Rate;
pub use rtt::Rtt;
