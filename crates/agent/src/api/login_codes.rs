//! Single-use login codes for the dashboard, valid for a minute: other users can read the command
//! line of a browser started with one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::agent::fresh_token;

/// The validity of a code: a browser may have to start first.
const VALID: Duration = Duration::from_secs(60);

/// Issued, unused codes with their expiry.
#[derive(Debug, Default)]
pub(super) struct LoginCodes(Mutex<HashMap<String, Instant>>);

impl LoginCodes {
    /// Issues a code.
    pub(super) fn issue(&self, now: Instant) -> String {
        let code = fresh_token();
        let mut codes = self.0.lock();
        codes.retain(|_, end| now < *end);
        codes.insert(code.clone(), now + VALID);
        code
    }

    /// Returns whether a code is valid, and invalidates it.
    pub(super) fn redeem(&self, code: &str, now: Instant) -> bool {
        self.0.lock().remove(code).is_some_and(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_code_is_valid_once_within_a_minute() {
        let (codes, now) = (LoginCodes::default(), Instant::now());
        let (used, late) = (codes.issue(now), codes.issue(now));
        assert!(codes.redeem(&used, now + VALID / 2) && !codes.redeem(&used, now));
        assert!(!codes.redeem(&late, now + VALID) && !codes.redeem("", now));
        codes.issue(now);
        codes.issue(now + VALID);
        assert_eq!(codes.0.lock().len(), 1);
    }
}
