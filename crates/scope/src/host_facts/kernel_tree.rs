//! Reads files of /proc and /sys.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use longhaul_core::host_check::Reading;

/// The root of the kernel's files: `/`, or a test's directory with copies.
#[derive(Debug, Clone)]
pub(super) struct KernelTree {
    root: PathBuf,
}

impl KernelTree {
    pub(super) fn of_this_host() -> Self {
        Self { root: PathBuf::from("/") }
    }

    #[cfg(test)]
    pub(super) fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns a path below the root.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a file and trims white space.
    pub(super) fn text(&self, path: &str) -> Reading<String> {
        read(&self.path(path))
    }

    /// Reads the words of a file.
    pub(super) fn words(&self, path: &str) -> Reading<Vec<String>> {
        Ok(self.text(path)?.split_whitespace().map(str::to_owned).collect())
    }

    /// Reads a file with a single value.
    pub(super) fn value<T: FromStr>(&self, path: &str) -> Reading<T> {
        let text = self.text(path)?;
        text.parse().map_err(|_| strange(path, &text))
    }

    /// Reads a file with three numbers.
    pub(super) fn three(&self, path: &str) -> Reading<[u64; 3]> {
        let text = self.text(path)?;
        let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
        numbers.try_into().map_err(|_| strange(path, &text))
    }

    /// Lists directory entries that consist of `prefix` and a number.
    pub(super) fn numbered(&self, directory: &str, prefix: &str) -> Reading<Vec<String>> {
        let path = self.path(directory);
        let entries = fs::read_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let is_one =
            |name: &String| name.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u32>().is_ok());
        Ok(names.filter(is_one).collect())
    }
}

/// Reads a file and trims white space.
pub(super) fn read(path: &Path) -> Reading<String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn strange(path: &str, text: &str) -> String {
    let shown: String = text.chars().take(40).collect();
    format!("{path}: '{shown}' is not understood")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates files below a temporary directory.
    pub(crate) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, KernelTree) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = KernelTree::below(dir.path());
        (dir, tree)
    }

    #[test]
    fn values_are_read_and_strange_ones_named() {
        let (_dir, tree) = tree(&[("proc/one", "7\n"), ("proc/three", "1\t2\t3\n"), ("proc/bad", "many\n")]);
        assert_eq!(tree.value::<u32>("/proc/one"), Ok(7));
        assert_eq!(tree.three("/proc/three"), Ok([1, 2, 3]));
        assert_eq!(tree.value::<u32>("/proc/bad"), Err("/proc/bad: 'many' is not understood".to_owned()));
        assert!(tree.three("/proc/one").is_err() && tree.three("/proc/bad").is_err());
        let absent = tree.value::<u32>("/proc/none").unwrap_err();
        assert!(absent.contains("proc/none: No such file"), "{absent}");
    }
}
