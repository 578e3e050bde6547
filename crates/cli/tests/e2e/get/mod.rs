//! End-to-end tests of `longhaul get` against real servers, and against scripted servers with
//! behaviour that no real server shows on demand.

mod answers;
mod bodies;
mod config_file;
mod connecting;
mod connection_options;
mod environment;
mod expired;
mod interface;
pub(crate) mod mirrors;
mod named_files;
mod names;
mod other_file;
mod outputs;
mod pace;
mod real_servers;
mod recording;
mod resuming;
mod several_streams;
mod stdout;
mod terminals;
mod tuned;
mod unread;
mod validators;
mod wrong_bytes;
