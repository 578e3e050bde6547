//! Authentication and encryption: gsiftp:// and ftps:// against real servers.

mod connect_timeout;
mod credentials;
mod ftps;
