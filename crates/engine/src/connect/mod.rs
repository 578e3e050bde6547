//! From a host's name to a connected socket; what every protocol's client does first.
//!
//! ```text
//!  ResolvedHosts::resolve -> addresses -> dial (happy eyeballs, socket options) -> TcpStream
//! ```
//!
//! A `Transport` is the socket, bare or within TLS. Every wait is cut into ticks, and ends with its `Deadline`: by a limit in time, or by a
//! cancel flag.

mod ahead;
mod deadline;
mod dial;
mod error;
mod resolved_hosts;
mod transport;

pub(crate) use ahead::{AheadConnection, MAX_UNUSED_AGE};
pub(crate) use deadline::Deadline;
pub(crate) use dial::{SocketSettings, dial};
pub use error::{Attempts, ConnectError};
pub(crate) use resolved_hosts::ResolvedHosts;
pub use resolved_hosts::{AddressFamily, AddressRules, FixedAddresses};
pub(crate) use transport::{Received, TlsStream, Transport};
