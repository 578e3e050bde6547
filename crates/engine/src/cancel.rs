//! The wish to stop, shared by every thread of a transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that is raised once; every blocking call of a transfer looks at it several times a second.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    raised: Arc<AtomicBool>,
    parent: Option<Arc<AtomicBool>>,
}

impl Cancel {
    /// Makes a flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a flag that is raised with this one, and can be raised without it.
    pub fn child(&self) -> Self {
        Self { raised: Arc::default(), parent: Some(Arc::clone(&self.raised)) }
    }

    /// Raises the flag.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is raised.
    pub fn is_cancelled(&self) -> bool {
        let raised = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        raised(&self.raised) || self.parent.as_ref().is_some_and(raised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_follows_and_does_not_lead() {
        let parent = Cancel::new();
        let (first, second) = (parent.child(), parent.child());
        first.cancel();
        assert!(first.is_cancelled() && !parent.is_cancelled() && !second.is_cancelled());
        parent.cancel();
        assert!(second.is_cancelled());
    }
}
