//! `longhaul agent` and `longhaul queue` as processes.

mod databases;
mod farm_kills;
mod kills;
mod loopback;
mod plans;
mod postgres;
mod transfers;
