//! The pace of replies, and the windows that connections begin with.

pub(crate) mod client_paths;
pub(crate) mod initial_window_pacing;
pub(crate) mod initial_window_routes;
pub(crate) mod reply_pacing;
