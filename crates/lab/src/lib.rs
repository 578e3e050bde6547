//! Longhaul's lab: an emulated long fat network between two hosts on this machine.
//!
//! The hosts are network namespaces with the real kernel's TCP; between them a userspace link carries
//! packets from one TUN device to another, late, at a rate, and not all of them.

mod clock;
mod cross_traffic;
mod error;
mod host;
mod lab;
mod link;
pub mod model;
mod privilege;
pub mod scenario;
mod spec;
mod wire;

pub use cross_traffic::CrossFlowStats;
pub use error::{LabError, LabErrorKind};
pub use host::{FarCommand, Finished, Host, Process};
pub use lab::Lab;
pub use link::{DirectionStats, PathStats};
pub use privilege::gain_privilege;
pub use spec::{
    Aqm, BackgroundSteps, CrossFlows, GeModel, Hosts, ParseAqmError, ParseBackgroundError, ParseChoiceError,
    ParseCrossFlowsError, ParseGeModelError, PathSpec, QueueLimit,
};
