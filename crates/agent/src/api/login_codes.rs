//! Codes that open the dashboard once, for a minute: other users may read the command line of the browser that is started with one.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::agent::fresh_token;
use crate::lock;

/// How long a code is valid: a browser may have to start first.
const VALID: Duration = Duration::from_secs(60);

/// The codes that were issued and not used, each with its end.
#[derive(Debug, Default)]
pub(super) struct LoginCodes(Mutex<HashMap<String, Instant>>);

impl LoginCodes {
    /// Makes a code.
    pub(super) fn issue(&self, now: Instant) -> String {
        let code = fresh_token();
        let mut codes = lock(&self.0);
        codes.retain(|_, end| now < *end);
        codes.insert(code.clone(), now + VALID);
        code
    }

    /// Returns whether a code is valid; it is not any more afterwards.
    pub(super) fn redeem(&self, code: &str, now: Instant) -> bool {
        lock(&self.0).remove(code).is_some_and(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_valid_once_and_for_a_minute() {
        let (codes, now) = (LoginCodes::default(), Instant::now());
        let (used, late) = (codes.issue(now), codes.issue(now));
        assert!(codes.redeem(&used, now + VALID / 2) && !codes.redeem(&used, now));
        assert!(!codes.redeem(&late, now + VALID) && !codes.redeem("", now));
        codes.issue(now);
        codes.issue(now + VALID);
        assert_eq!(lock(&codes.0).len(), 1);
    }
}
