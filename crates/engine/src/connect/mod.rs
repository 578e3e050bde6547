//! From a host name to a connected socket, for clients of all protocols.
//!
//! ```text
//!  ResolvedHosts::resolve -> addresses -> dial (happy eyeballs, socket options) -> TcpStream
//! ```
//!
//! A `Transport` is a socket, plain or within TLS. Every wait is divided into ticks, and ends with
//! its `Deadline`: by a time limit or a cancel flag.

mod deadline;
mod dial;
mod resolved_hosts;
mod transport;
mod zones;

pub(crate) use deadline::Deadline;
pub(crate) use dial::{AheadConnection, MAX_UNUSED_AGE, SocketSettings, dial};
pub(crate) use resolved_hosts::ResolvedHosts;
pub use resolved_hosts::{AddressFamily, AddressRules, FixedAddresses};
pub use transport::Received;
pub(crate) use transport::{Transport, wait_readable};
pub use zones::{parse_address, parse_zoned, socket_address, split_zone, without_zone};
