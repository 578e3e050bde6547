//! The client side of HTTP/1.1 on blocking sockets.
//!
//! ```text
//! Client::open   resolve -> dial -> (tunnel) -> (TLS) -> Connection -> redirects, one 401
//! Connection     send_get, send_get, ..   read_head, read_body, read_body, .. read_head, ..
//! read_body      socket --recv(2)--> the caller's buffer; TLS copies once more
//! Client::keep   Connection -> idle connections -> the next open or connect to the origin
//! ```
//!
//! | folder | concern |
//! | - | - |
//! | `http_source`, `worker` | one file: its first answer, its state, and the ranges that streams request |
//! | `lister` | directories |
//! | `client` | opening URLs, settings, kept connections |
//! | `target` | URLs, redirects and their secrets, proxies, addresses |
//! | `authentication` | TLS, pins, logins |
//! | `connection` | requests, answers and bodies on one connection |
//! | `error` | errors, their kinds and retries |
//!
//! Every wait is divided into ticks (SO_RCVTIMEO), at which cancellation and deadlines are checked
//! without another thread.

mod authentication;
mod client;
mod connection;
mod error;
mod http_source;
mod lister;
mod target;
mod worker;

pub(crate) use authentication::credentials::is_loopback;
pub use authentication::credentials::{Credentials, is_cleartext};
pub use authentication::key_pin::KeyPin;
pub use authentication::netrc_file::NetrcFile;
pub(crate) use authentication::tls::{
    explained as tls_explained, of_tls, send_error, server_name, settings as tls_settings,
};
pub(crate) use client::clients::Clients;
pub use client::config::{
    ClientCertificate, ClientConfig, LoginConfig, NetrcUse, RequestConfig, Timeouts, TlsConfig,
};
pub use client::{Chooser, Client, OpenedUrl};
pub(crate) use connection::explanation::read_explanation;
pub use connection::{Connection, EarlyAnswer};
pub use error::HttpError;
pub(crate) use error::{refusal, remedy, unusable_url};
pub(crate) use http_source::{HttpSource, SourceOptions};
pub(crate) use lister::HttpLister;
pub use target::proxy::ProxyPolicy;
pub(crate) use target::redirects::Redirects;
pub use target::resolved_url::ResolvedUrl;
pub use target::safe_url::{SafeUrl, UrlAndPeer};
