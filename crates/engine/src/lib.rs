//! Longhaul: engine.
