//! End-to-end tests of `longhaul put` against real servers, and against scripted servers with behaviour that no real
//! server shows on demand.

mod answers;
mod collections;
mod completing;
mod corruption;
mod dav;
mod failing_disk;
mod faulty_dav;
mod full_disk;
mod interface;
mod memory;
mod real_servers;
mod redirects;
mod resuming;
mod round_trips;
mod serve;
mod sources;
mod streams;
