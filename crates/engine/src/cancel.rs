//! A cancellation flag, shared by every thread of a transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The interval at which [`Cancel::sleep`] checks the flag.
const SLEEP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A flag that is raised once; every blocking call of a transfer checks it several times a second.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Flag>);

#[derive(Debug, Default)]
struct Flag {
    raised: AtomicBool,
    parent: Option<Cancel>,
    /// The time at which the flag counts as raised.
    until: Option<Instant>,
}

impl Cancel {
    /// Creates a flag that is not raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a child flag, which is also raised when this flag is raised, but not the reverse.
    pub fn child(&self) -> Self {
        Self(Arc::new(Flag { parent: Some(self.clone()), ..Flag::default() }))
    }

    /// Creates a [`child`](Self::child) that is also raised when the time `until` is reached.
    pub fn child_until(&self, until: Instant) -> Self {
        Self(Arc::new(Flag { parent: Some(self.clone()), until: Some(until), ..Flag::default() }))
    }

    /// Raises the flag.
    pub fn cancel(&self) {
        self.0.raised.store(true, Ordering::Relaxed);
    }

    /// Returns whether the flag is raised.
    pub fn is_cancelled(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed)
            || self.0.until.is_some_and(|until| Instant::now() >= until)
            || self.0.parent.as_ref().is_some_and(Self::is_cancelled)
    }

    /// Returns whether the flag is raised only because its own time has passed.
    pub fn is_expired(&self) -> bool {
        !self.0.raised.load(Ordering::Relaxed) && self.0.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Waits for `time`, or until the flag is raised; returns whether it is.
    pub fn sleep(&self, time: Duration) -> bool {
        let began = Instant::now();
        while !self.is_cancelled() {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(SLEEP_CHECK_INTERVAL));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_ends_when_cancelled_or_at_the_time_of_a_child_which_does_not_cancel_its_parent() {
        let cancel = Cancel::new();
        assert!(!cancel.sleep(Duration::from_millis(1)));
        let began = Instant::now();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| cancel.sleep(Duration::from_secs(60)));
            cancel.cancel();
            assert!(sleeper.join().unwrap());
        });
        assert!(began.elapsed() < Duration::from_secs(10));
        let parent = Cancel::new();
        let child = parent.child_until(Instant::now() + Duration::from_millis(30));
        assert!(child.sleep(Duration::from_secs(60)) && !parent.is_cancelled());
        assert!(child.is_expired() && !parent.is_expired());
        child.cancel();
        assert!(!child.is_expired());
        let later = parent.child_until(Instant::now() + Duration::from_secs(60));
        assert!(!later.is_cancelled());
        parent.cancel();
        assert!(later.is_cancelled());
        let parent = Cancel::new();
        let (first, second) = (parent.child(), parent.child());
        let grandchild = second.child();
        first.cancel();
        assert!(first.is_cancelled() && !parent.is_cancelled() && !second.is_cancelled());
        parent.cancel();
        assert!(second.is_cancelled() && grandchild.is_cancelled());
    }
}
