//! Longhaul's lab: an emulated long fat network between two hosts on this machine.
//!
//! The hosts are network namespaces with the real kernel's TCP. A userspace link carries packets
//! between their TUN devices with delay, rate limit and loss.
//!
//! The link's [`model`] is pure. It requires neither privileges nor a clock, and also runs in
//! virtual time:
//!
//! ```
//! use std::time::Duration;
//!
//! use longhaul_core::units::Bytes;
//! use longhaul_lab::model::{DropCause, Delay, Fate, Line, Link, QueueLimit, RatedQueue, Time};
//!
//! // A bottleneck of 10 Gbit/s whose queue holds two packets, then 100 ms one way.
//! let queue = Box::new(QueueLimit::Packets(2));
//! let bottleneck = RatedQueue::new(Line::fixed("10Gbit".parse()?), queue, None);
//! let delay = Delay::new(Duration::from_millis(100), Duration::ZERO, 1);
//! let mut link = Link::new().then(bottleneck).then(delay);
//!
//! // Three packets arrive at once. Each takes 1.2 µs to send; the queue drops the third.
//! let fates = [(); 3].map(|()| link.pass(Time::START, Bytes::new(1500)));
//! let at = |nanos| Fate::Leaves(Time::from_nanos(nanos));
//! assert_eq!(fates, [at(100_001_200), at(100_002_400), Fate::Dropped(DropCause::Queue)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
