//! Receives the bodies of uploads: whole files, parts, and ranges beside each other.

pub(super) mod body_reader;
pub(super) mod body_receiver;
mod final_reply;
pub(super) mod handler;
pub(super) mod opened;
pub(super) mod ranged;
pub(super) mod ranged_uploads;
pub(super) mod worker;
