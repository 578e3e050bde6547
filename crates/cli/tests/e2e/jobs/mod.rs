//! End-to-end tests of several files and several sources of one file, against scripted and real servers.

mod many_files;
mod metalinks;
mod mirrors;
mod names;
mod progress_lines;
mod several_files;
