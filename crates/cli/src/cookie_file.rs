//! Files of cookies in Netscape's format.

use std::path::Path;

use anyhow::bail;
use longhaul_core::proto::cookies::CookieJar;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;

/// Reads a file of cookies.
///
/// # Errors
/// The file is unreadable, or no line is a cookie.
pub(crate) fn read(path: &Path, cancel: &Cancel) -> anyhow::Result<CookieJar> {
    /// Larger than any browser's cookie store.
    const LONGEST: Bytes = Bytes::mib(16);
    let file = CookieJar::parse(&input_file::read(path, LONGEST, cancel)?);
    match file.skipped.first() {
        Some(_) if file.jar.is_empty() => {
            bail!(
                "no line is a cookie in Netscape's format: domain, TRUE or FALSE, path, TRUE or FALSE, expiry, name, value, with tabs between"
            )
        }
        Some(line) => {
            let (lines, path) = (file.skipped.len(), path.display());
            tracing::warn!("{path}: {lines} lines are no cookies and are left out, the first is line {line}");
        }
        None => {}
    }
    Ok(file.jar)
}
