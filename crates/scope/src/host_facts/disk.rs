//! Facts about the destination's file system, without a measurement.

use std::path::Path;

use longhaul_core::host_check::{DirectIoFact, DiskFacts, Reading};
use longhaul_core::units::Bytes;
use longhaul_sys::direct_io;

pub(super) fn facts(path: &Path) -> DiskFacts {
    DiskFacts { path: path.to_owned(), free: free(path), direct_io: alignment(path), write_test: None }
}

/// Returns the bytes that this user can still write.
fn free(path: &Path) -> Reading<Bytes> {
    let stat = rustix::fs::statvfs(path).map_err(|error| format!("statvfs {}: {error}", path.display()))?;
    Ok(Bytes::new(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Queries the alignment of Direct I/O with an unnamed file.
fn alignment(path: &Path) -> Reading<DirectIoFact> {
    let file = tempfile::tempfile_in(path)
        .map_err(|error| format!("cannot make a file in {}: {error}", path.display()))?;
    direct_io::ask(&file).ok_or_else(|| {
        format!("statx in {}: no STATX_DIOALIGN (before Linux 6.1, or the file system)", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_has_space_and_an_absent_one_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let facts_here = facts(dir.path());
        assert!(facts_here.free.unwrap() > Bytes::ZERO);
        let gone = facts(&dir.path().join("none"));
        assert!(gone.free.unwrap_err().contains("none: No such file"));
        assert!(gone.direct_io.unwrap_err().contains("cannot make a file in"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }
}
