//! `longhaul lab` as a process, up to a SIGKILL.
mod evidence;
mod exec;
mod interrupt;
mod run;
mod scenarios;
