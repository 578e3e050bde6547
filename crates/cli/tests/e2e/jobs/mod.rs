//! End-to-end tests of several files, against scripted and real servers.

pub(crate) mod metalinks;
mod several_files;
