//! `longhaul doctor` as its user sees it.
//!
//! Settings are changed in network namespaces of the tests' own; the host's stay as they are.
mod command;
mod devices;
mod fix;
mod permanent;
mod report;
