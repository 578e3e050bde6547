//! The subcommands, a file each.

pub(crate) mod serve;
