//! `longhaul agent` and `longhaul queue` as processes.

mod databases;
mod idle;
mod kills;
mod limits;
mod links;
mod loopback;
mod offers;
mod transfers;
