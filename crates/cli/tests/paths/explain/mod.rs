//! `longhaul explain` as a process, and explanations of transfers with planted faults.
mod captures;
mod command;
mod curl;
mod planted_faults;
mod processes;
mod records;
