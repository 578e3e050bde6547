//! `longhaul agent` and `longhaul queue` as processes.

mod databases;
mod kills;
mod limits;
mod loopback;
mod transfers;
