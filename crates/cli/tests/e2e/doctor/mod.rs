//! `longhaul doctor` as its user sees it.
//!
//! Settings are changed in network namespaces of the tests' own; the host's stay as they are.
mod command;
mod devices;
mod disk;
mod fix;
mod in_time;
mod permanent;
mod report;
mod unprivileged;
