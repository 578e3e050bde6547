//! The client side of FTP and GridFTP (RFC 959, 2389, 3659; GFD.20): a control connection, and data
//! connections in both directions.
//!
//! ```text
//!  GridFtpSource::describe   dial -> ControlConnection -> login: USER PASS FEAT TYPE MLST SIZE MDTM in one flight
//!  extended_mode (MODE E)    one control connection; PORT, ERET chunk after chunk; the server opens N data connections
//!  stream_mode (MODE S)      one control connection per stream; EPSV, REST, RETR; closed at the end of the range
//!  store                     the operations of upload/gridftp: EPSV, STOR, ESTO, CKSM, MFMT, RNTO
//!  FtpSessions               keeps logged-in control connections, and their data connections, for further files
//! ```
//!
//! The syntax and rules of the protocol are in `core::proto::gridftp`; this module handles sockets,
//! waits and buffers.

mod chunk_pace;
mod control;
mod data_protection;
mod error;
mod extended_mode;
mod gridftp_source;
mod gsi;
mod lister;
mod login;
mod measured_flow;
mod passive_connection;
mod remote_address;
mod remote_state;
mod security;
mod sessions;
mod store;
mod stream_mode;
mod unproved;
mod worker;

pub(crate) use error::FtpError;
pub(crate) use gridftp_source::GridFtpSource;
pub(crate) use lister::FtpLister;
pub(crate) use measured_flow::{MeasuredFlow, features, file_size};
pub use sessions::FtpSessions;
pub(crate) use store::{BlockDialler, StoreSession, StoreStart, StoreTarget};
