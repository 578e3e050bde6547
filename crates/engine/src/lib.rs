//! Longhaul's engine: bytes move here and nowhere else.

pub mod send;
