//! The client side of HTTP/1.1 on blocking sockets.
//!
//! ```text
//! Client::open   resolve -> dial -> (tunnel) -> (TLS) -> Connection -> redirects, one 401
//! Connection     send_get, send_get, ..   read_head, read_body, read_body, .. read_head, ..
//! read_body      socket --recv(2)--> the caller's buffer; TLS copies once more
//! Client::keep   Connection -> idle connections -> the next open or connect to the origin
//! ```
//!
//! Every wait is divided into ticks (SO_RCVTIMEO), at which cancellation and deadlines are checked without another
//! thread.

mod ahead;
mod body;
mod buffered_transport;
mod client;
mod clients;
mod config;
mod connection;
mod connection_key;
mod credentials;
mod digest_login;
mod early;
mod error;
mod explanation;
mod failure;
mod first_answer;
mod http_source;
mod idle;
mod key_pin;
mod known_pace;
mod linked_entries;
mod lister;
mod location;
mod netrc_file;
mod proxy;
mod published_pieces;
mod redirect;
mod refit;
mod remote_file;
mod resolved_url;
mod safe_url;
mod server_addresses;
mod server_trust;
mod short_exchange;
mod tls;
mod weak_rsa;
mod worker;

pub use body::Read;
pub use client::{Chooser, Client, OpenedUrl};
pub(crate) use clients::Clients;
pub use config::{ClientCertificate, ClientConfig, NetrcUse, Timeouts, TlsConfig};
pub use connection::{Connection, EarlyAnswer};
pub(crate) use credentials::is_loopback;
pub use credentials::{Credentials, is_cleartext};
pub use error::HttpError;
pub(crate) use error::{asks_unspoken_login, explained, is_too_busy, remedy};
pub(crate) use explanation::read_explanation;
pub(crate) use http_source::{HttpSource, SourceOptions};
pub use key_pin::{KeyPin, KeyPinError};
pub(crate) use lister::HttpLister;
pub use netrc_file::NetrcFile;
pub use proxy::ProxyPolicy;
pub(crate) use redirect::Redirects;
pub use resolved_url::ResolvedUrl;
pub use safe_url::{SafeUrl, UrlAndPeer};
pub(crate) use tls::{explained as tls_explained, of_tls, send_error, settings as tls_settings};
