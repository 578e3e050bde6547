//! The locks of the segment pool: the model test puts loom's in their place.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
