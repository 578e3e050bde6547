//! Requests for uploads: parsed, checked and refused before their bodies.

pub(super) mod collection;
pub(super) mod command;
pub(super) mod listing;
pub(super) mod refusal;
pub(super) mod repr_digest;
pub(super) mod start;
