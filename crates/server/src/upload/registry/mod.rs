//! The uploads of a server: in progress, unfinished, and complete.

pub(super) mod active;
pub(super) mod digests;
pub(super) mod disk_reserve;
pub(super) mod partials;
pub(super) mod recently_completed;
pub(super) mod upload_journal;
