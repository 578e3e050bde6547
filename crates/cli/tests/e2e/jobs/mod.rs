//! End-to-end tests of several files, against scripted and real servers.

mod metalinks;
mod progress_lines;
mod several_files;
