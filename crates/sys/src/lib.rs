//! Longhaul's safe wrappers around the kernel: one small file a concept, and the only unsafe code.

pub mod send_options;
