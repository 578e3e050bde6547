//! Records: the events of a transfer as JSON, one object per line.
//!
//! [`Recorder`] writes a record, [`Record`] reads one; [`schema`] defines the first and the last
//! line.

mod file;
mod jobs;
mod lines;
mod reader;
mod recorder;
pub mod schema;
mod tcp_fields;

pub use reader::Record;
pub use recorder::Recorder;
pub use tcp_fields::TcpFields;
