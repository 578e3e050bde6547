//! The paths of a plan, which must be different ones, and none of them in another one.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::FarmError;

/// The paths of a plan.
#[derive(Debug, Default)]
pub(super) struct PlannedPaths {
    /// Whether a path is that of a directory, by 16 bytes of its digest.
    is_directory: HashMap<[u8; 16], bool>,
    /// The directory of the last file.
    last: PathBuf,
}

impl PlannedPaths {
    /// Adds the path of a file.
    ///
    /// # Errors
    /// [`FarmError::Twice`], [`FarmError::FileAndDirectory`].
    pub(super) fn add_file(&mut self, path: &Path) -> Result<(), FarmError> {
        self.add_directory(path.parent().unwrap_or(Path::new("")))?;
        match self.is_directory.insert(key(path), false) {
            None => Ok(()),
            Some(false) => Err(FarmError::Twice(path.to_owned())),
            Some(true) => {
                self.is_directory.insert(key(path), true);
                Err(FarmError::FileAndDirectory(path.to_owned()))
            }
        }
    }

    /// Adds the path of a directory, and of those above it.
    ///
    /// # Errors
    /// [`FarmError::FileAndDirectory`].
    pub(super) fn add_directory(&mut self, path: &Path) -> Result<(), FarmError> {
        if path == self.last {
            return Ok(());
        }
        let mut new = Vec::new();
        for above in path.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            match self.is_directory.get(&key(above)) {
                None => new.push((key(above), true)),
                Some(true) => break,
                Some(false) => return Err(FarmError::FileAndDirectory(above.to_owned())),
            }
        }
        self.is_directory.extend(new);
        path.clone_into(&mut self.last);
        Ok(())
    }
}

fn key(path: &Path) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(path.as_os_str().as_bytes()).as_bytes()[..16]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_of_one_file_or_of_a_directory() {
        for (paths, refused) in [
            (&["a", "b", "c/a", "c/d/a", "c/d/b"][..], None),
            (&["a", "b", "a"], Some("two files would get the path a:")),
            (&["a/b/c", "a"], Some("a file and a directory would get the path a:")),
            (&["x/a", "x/a/b/c"], Some("a file and a directory would get the path x/a:")),
            (&["a/b", "x/y", "a/b/c"], Some("the path a/b:")),
        ] {
            let mut planned = PlannedPaths::default();
            let (last, others) = paths.split_last().unwrap();
            others.iter().for_each(|path| planned.add_file(Path::new(path)).unwrap());
            // Also when it was refused before.
            for _ in 0..if refused.is_some() { 2 } else { 1 } {
                let error = planned.add_file(Path::new(last)).err().map(|error| error.to_string());
                assert_eq!(error.is_some(), refused.is_some(), "{error:?}");
                assert!(error.unwrap_or_default().contains(refused.unwrap_or_default()), "{paths:?}");
            }
        }
        let mut planned = PlannedPaths::default();
        planned.add_file(Path::new("a")).unwrap();
        assert!(
            planned.add_directory(Path::new("a")).is_err() && planned.add_directory(Path::new("")).is_ok()
        );
    }
}
