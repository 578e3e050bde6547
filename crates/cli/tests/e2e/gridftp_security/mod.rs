//! Authentication and encryption: gsiftp:// and ftps:// against real servers.

mod close_notify;
mod connect_timeout;
mod credentials;
mod ftps;
mod server_certificate;
