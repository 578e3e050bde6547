//! Longhaul's instruments: records, charts and diagnoses of transfers.
//!
//! [`record`] writes and reads the events of a transfer. [`figures`] makes [`chart`]s of records,
//! and [`draw`] renders them. [`diagnosis`] finds what limited a transfer, from a record or a
//! packet [`capture`]; [`live`] observes the sockets of a running program. [`host_facts`] reads the
//! limits of a host.

pub mod capture;
pub mod chart;
pub mod diagnosis;
pub mod draw;
pub mod figures;
pub mod host_facts;
pub mod live;
pub mod record;
