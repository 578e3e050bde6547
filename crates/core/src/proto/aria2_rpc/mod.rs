//! aria2's JSON-RPC (aria2's manual, "RPC INTERFACE"), so that its clients work with Longhaul:
//! requests, options and statuses.
//!
//! ```
//! use longhaul_core::proto::aria2_rpc::{Incoming, Params, authorize};
//!
//! let body = br#"{"jsonrpc":"2.0","id":"1","method":"aria2.tellStatus","params":["token:s3cret","000000000000000a"]}"#;
//! let Ok(Incoming::One(call)) = Incoming::parse(body) else { panic!() };
//! let params = authorize(&call.method, call.params, "s3cret")?;
//! assert_eq!(Params::new(&params).gid(0)?.number(), 10);
//! # Ok::<(), longhaul_core::proto::aria2_rpc::RpcError>(())
//! ```

mod error;
mod gid;
mod message;
mod options;
mod params;
mod status;

pub use error::RpcError;
pub use gid::Gid;
pub use message::{Call, Incoming, MAX_CALLS, NOTIFICATIONS, Reply, authorize, notification};
pub use options::{Aria2Options, GlobalOptions, PlaceOptions, RequestOptions};
pub use params::{Move, Params};
pub use status::{FileStatus, GlobalStat, Keys, State, TransferStatus, uris};
