//! The subcommands, one file each.

pub(crate) mod agent;
pub(crate) mod browser;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod lab;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod put;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod serve;
pub(crate) mod slurm;
pub(crate) mod work;
