//! Connections: accepted, read request by request, and answered.

pub(crate) mod accept;
pub(crate) mod http_connection;
pub(crate) mod late_requests;
pub(crate) mod next_request;
pub(crate) mod plain_sender;
pub(crate) mod routes;
pub(crate) mod stall_detector;
pub(crate) mod targets;
pub(crate) mod tls_sender;
pub(crate) mod transport;
