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
pub use host::{BadEnd, Finished, Host, Process, ServerCommand, Watch};
pub use lab::Lab;
pub use link::{DirectionEvidence, DirectionStats, FlowStats, PathStats, QueueSample};
pub use privilege::gain_privilege;
pub use spec::{
    Aqm, BackgroundSteps, CrossFlows, GeModel, Hosts, Overrides, PacketShare, Pair, Pairs, ParseAqmError,
    ParseBackgroundError, ParseChoiceError, ParseCrossFlowsError, ParseGeModelError, ParseOverridesError,
    ParsePairsError, ParseReorderError, ParseScheduleError, ParseShareError, PathSpec, PayloadCapacity,
    QueueLimit, RateSchedule, Reorder,
};
pub use wire::FlowKey;

/// The environment variable by which longhaul ignores the user's config.toml. Commands of a scenario have it: their results must
/// not depend on the user.
pub const NO_CONFIG: &str = "LONGHAUL_NO_CONFIG";
