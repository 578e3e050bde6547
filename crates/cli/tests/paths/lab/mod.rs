//! `longhaul lab` as a process, up to a SIGKILL.
mod apt;
mod command;
mod connecting_ahead;
mod evidence;
mod exec;
mod icdc;
mod interrupt;
mod last_packet;
mod own_scenarios;
mod put_streams;
mod results;
mod run;
mod scenario;
mod serve_buffers;
