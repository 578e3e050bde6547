//! Controllers: functions of what was observed, without I/O, clock or threads.

pub mod apt;
pub mod edge;
pub mod pace;
pub mod ring;
mod train;
pub mod window;
