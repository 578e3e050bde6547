//! Longhaul's instruments: what is seen of a transfer is recorded, and drawn.
//!
//! [`record`] is a file of what a transfer told; [`chart`] says what is to be drawn, whatever it is;
//! [`figures`] makes charts of records, and [`draw`] pictures of charts. [`diagnosis`] says what limited a transfer, of which there is
//! a record or a [`capture`] of packets; [`live`] reads the sockets of a running program. [`host_facts`] reads what a host can carry.

pub mod capture;
pub mod chart;
pub mod diagnosis;
pub mod draw;
pub mod figures;
pub mod host_facts;
pub mod live;
pub mod record;
