//! Longhaul's safe wrappers around the kernel, one small file each: the only unsafe code.

pub mod netns;
pub mod process;
pub mod ring;
pub mod tun;
