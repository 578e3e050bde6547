//! `longhaul probe` as a process.
mod bad_input;
mod command;
mod endpoint;
mod iperf3;
mod lab;
mod other_servers;
