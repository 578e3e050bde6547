//! Skips a test that needs what this machine lacks.

/// Prints why a test does not run. Fails under `CI=true`, where every test has what it needs.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "cannot run: {why}");
    println!("skipped: {why}");
}
