//! Limits the number and size of records of transfers.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

/// The maximum number of records.
const MAX_RECORDS: usize = 500;
/// The maximum size of all records in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Removes the oldest records beyond the limits.
pub(super) fn prune(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut records: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let meta = entry.metadata().ok()?;
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            meta.is_file().then(|| (modified, meta.len(), entry.path()))
        })
        .collect();
    records.sort_by_key(|(modified, ..)| std::cmp::Reverse(*modified));
    let mut bytes = 0;
    for (number, (_, length, path)) in records.iter().enumerate() {
        bytes += length;
        if number >= MAX_RECORDS || bytes > MAX_BYTES {
            // Retried after the next transfer.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn oldest_records_are_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..MAX_RECORDS + 3 {
            let path = dir.path().join(format!("{number}.jsonl"));
            let file = fs::File::create(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64)).unwrap();
        }
        prune(dir.path());
        let there = |number: usize| dir.path().join(format!("{number}.jsonl")).exists();
        assert!(!there(2) && there(3) && there(MAX_RECORDS + 2));
    }
}
