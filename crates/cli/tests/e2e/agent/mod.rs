//! `longhaul agent` and `longhaul queue` as processes.

mod databases;
mod farm_kills;
mod kills;
mod loopback;
mod postgres;
mod transfers;
