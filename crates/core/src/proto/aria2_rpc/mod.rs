//! aria2's JSON-RPC (aria2's manual, "RPC INTERFACE"), so that its clients work with Longhaul: requests, options and
//! statuses.
//!
//! ```
//! use longhaul_core::proto::aria2_rpc::{Incoming, Method, authorize};
//!
//! let body = br#"{"jsonrpc":"2.0","id":"1","method":"aria2.tellStatus","params":["token:s3cret","000000000000000a"]}"#;
//! let Ok(Incoming::One(call)) = Incoming::parse(body) else { panic!() };
//! let params = authorize(&call.method, call.params, "s3cret")?;
//! assert!(matches!(Method::parse(&call.method, &params)?, Method::TellStatus { gid, .. } if gid.number() == 10));
//! # Ok::<(), longhaul_core::proto::aria2_rpc::RpcError>(())
//! ```

mod error;
mod gid;
mod message;
mod method;
mod options;
mod params;
mod status;

pub use error::RpcError;
pub use gid::Gid;
pub use message::{Call, Incoming, MAX_CALLS, Reply, authorize, notification};
pub use method::{Method, Move, NOTIFICATIONS, methods};
pub use options::{GlobalOptions, JobOptions, PlaceOptions, RequestOptions};
pub use status::{GlobalStat, Keys, State, TransferStatus, uris};
