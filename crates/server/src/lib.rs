//! Longhaul: server.
