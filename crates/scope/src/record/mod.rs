//! Records: the events of a transfer, one JSON object a line.
//!
//! [`Recorder`] writes one, [`Record`] is one that was read; [`schema`] has the first line and the last.

mod error;
mod file;
mod first_line;
mod jobs;
mod lines;
mod reader;
mod recorder;
pub mod schema;
mod tcp_fields;

pub use error::{RecordError, RecordErrorKind};
pub use reader::Record;
pub use recorder::Recorder;
pub use tcp_fields::TcpFields;
