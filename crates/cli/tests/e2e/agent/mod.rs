//! `longhaul agent` and `longhaul queue` as processes.

mod databases;
mod kills;
mod loopback;
mod postgres;
mod transfers;
