//! The agent's dashboard in real browsers: `dashboard/test/run.mjs` drives Firefox and Chromium.

use crate::browser::{folder, missing, npm};
use crate::support::skip;

#[test]
fn dashboard_works_in_firefox_and_chromium() {
    let folder = folder("dashboard");
    match missing(&folder, &["node", "npm", "firefox-esr", "chromium"]) {
        Some(why) => skip(&why),
        None => npm(&folder, "e2e"),
    }
}
