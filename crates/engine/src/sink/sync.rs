//! The locks of the segment pool, which the model test replaces by those of loom.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
