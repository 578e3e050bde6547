//! Quantities with their units: sizes in bytes (IEC), rates in bits per second (SI), round-trip
//! times.
//!
//! Function signatures use these types instead of bare integers for sizes, rates and times.

mod bytes;
mod number;
mod rate;
mod rtt;
pub mod seconds;

pub use bytes::Bytes;
pub use number::ParseUnitError;
pub use rate::Rate;
pub use rtt::Rtt;
