//! `longhaul lab` as a process, up to a SIGKILL.
mod evidence;
mod exec;
mod interrupt;
mod results;
mod run;
mod scenarios;
