//! Controllers: functions of what was observed, without I/O, clock or threads.

pub mod pace;
pub mod ring;
pub mod window;
