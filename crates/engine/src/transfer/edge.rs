//! When a server is paced through the receive window.

use longhaul_core::units::Bytes;
use longhaul_sys::{host, sockopt};

use super::remote::Remote;
use super::request::GetRequest;
use crate::source::http::Connection;

/// A shorter block is over before a pace is found.
pub(super) const WORTH_IT: Bytes = Bytes::mib(16);
/// The window's scale comes from `tcp_rmem`; with less it could not be opened far enough.
const SCALE: Bytes = Bytes::mib(64);

/// Says whether that is possible: the server does not pace itself, and this process and connection can.
pub(super) fn is_possible(remote: &Remote, connection: &Connection) -> bool {
    let scale = host::tcp_rmem_max().is_some_and(|most| most >= SCALE);
    !remote.paces && scale && !connection.is_tls() && sockopt::may_force_recv_buffer()
}

/// Says whether that is asked for, and possible.
pub(super) fn is_for(request: &GetRequest, remote: &Remote, connection: &Connection) -> bool {
    request.window_pace().is_some() && is_possible(remote, connection)
}
