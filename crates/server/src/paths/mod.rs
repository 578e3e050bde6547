//! Paths below the served directory, and the file systems that hold them.

pub(crate) mod beneath_root;
pub(crate) mod disks;
pub(crate) mod file_state;
pub(crate) mod mount_table;
