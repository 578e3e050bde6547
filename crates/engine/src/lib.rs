//! Longhaul's engine: bytes move here and nowhere else.
//!
//! Network to disk is [`recv`] behind a [`source`]. The engine knows no recorder: what happens is
//! told to an `Observer`.

pub mod cancel;
pub mod digest;
pub mod recv;
pub mod source;
