//! Longhaul: lab.
