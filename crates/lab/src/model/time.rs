//! A point in virtual time.

use std::ops::Add;
use std::time::Duration;

/// A point in time, in nanoseconds since the link's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The link's start.
    pub const START: Self = Self(0);

    /// Returns the point `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the duration since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point `time` earlier, but not before the start.
    pub(crate) const fn before(self, time: Duration) -> Self {
        Self(Self(self.0).since(Self(time.as_nanos() as u64)).as_nanos() as u64)
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}
