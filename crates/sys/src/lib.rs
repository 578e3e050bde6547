//! Longhaul: sys.
