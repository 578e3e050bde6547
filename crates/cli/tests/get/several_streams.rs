//! several_streams
