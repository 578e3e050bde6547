//! Longhaul's lab: an emulated long fat network between two hosts on this machine.
//!
//! The hosts are network namespaces with the real kernel's TCP. A userspace link carries packets
//! between their TUN devices with delay, rate limit and loss.

mod clock;
mod cpu_time;
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

pub use cpu_time::CpuShares;
pub use cross_traffic::CrossFlowStats;
pub use error::LabError;
pub use host::{Finished, Host, ObservationOptions, Process, ServerCommand, ServerCommandFailure};
pub use lab::Lab;
pub use link::{
    DirectionEvidence, DirectionStats, FlowStats, FrameLateness, ImpairedPackets, PathStats, QueueSample,
};
pub use privilege::gain_privilege;
pub use spec::{
    Aqm, BackgroundSteps, CrossFlows, EndSpec, GeModel, Hosts, ImpairmentSpec, Overrides, PacketShare, Pair,
    Pairs, ParsePathError, PartOverrides, PathSpec, PayloadCapacity, QueueLimit, RateSchedule, Reorder,
    TrafficSpec,
};
pub use wire::FlowKey;

/// The environment variable that makes longhaul ignore the user's config.toml. Scenarios set it for
/// their commands, so that results do not depend on the user.
pub const NO_CONFIG: &str = "LONGHAUL_NO_CONFIG";
