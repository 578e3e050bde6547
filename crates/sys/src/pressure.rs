//! Pressure stall information (PSI, Linux 4.20): how long tasks waited for a scarce resource.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The total time that some task has waited for a CPU or for memory, of this host, and of this
/// process's control group if it has its own counters (version 2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pressure(Vec<Option<Duration>>);

/// The files with the counters of a host and of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PressureFiles(Vec<PathBuf>);

impl PressureFiles {
    /// Finds the files of this host and process; none if the kernel provides no counters.
    pub fn find() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::under(Path::new("/proc/pressure"), &groups, Path::new("/sys/fs/cgroup"))
    }

    fn under(host: &Path, groups: &str, root: &Path) -> Self {
        let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        // If version 1 is also mounted, version 2 is one level deeper.
        let own = own.filter(|own| !own.is_empty()).into_iter();
        let group = own.flat_map(|own| [root.join(own), root.join("unified").join(own)]);
        let of_group = group.flat_map(|group| [group.join("cpu.pressure"), group.join("memory.pressure")]);
        let files = [host.join("cpu"), host.join("memory")].into_iter().chain(of_group);
        Self(files.filter(|file| total(file).is_some()).collect())
    }

    /// Reads the counters; takes a few microseconds.
    pub fn read(&self) -> Pressure {
        Pressure(self.0.iter().map(|file| total(file)).collect())
    }
}

impl Pressure {
    /// Returns the waiting time since `earlier`, for the resource with the longest wait.
    pub fn since(&self, earlier: &Self) -> Duration {
        let waited = self
            .0
            .iter()
            .zip(&earlier.0)
            .filter_map(|(now, before)| Some((*now)?.saturating_sub((*before)?)));
        waited.max().unwrap_or_default()
    }
}

/// Reads the total of the line "some" in microseconds.
fn total(file: &Path) -> Option<Duration> {
    let text = fs::read_to_string(file).ok()?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "avg10=0.00 avg60=0.00 avg300=0.00 total=";

    fn write(file: &Path, some: u64) {
        fs::write(file, format!("some {LINE}{some}\nfull {LINE}7\n")).unwrap();
    }

    #[test]
    fn longest_wait_of_host_and_group_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let (host, root) = (dir.path().join("pressure"), dir.path().join("cgroup"));
        let group = root.join("user.slice/a b");
        fs::create_dir_all(&host).unwrap();
        fs::create_dir_all(&group).unwrap();
        let groups = "4:memory:/old\n0::/user.slice/a b\n";
        let find = || PressureFiles::under(&host, groups, &root);
        assert_eq!(find().read(), Pressure::default());
        write(&host.join("cpu"), 1000);
        write(&host.join("memory"), 500);
        write(&group.join("cpu.pressure"), 10);
        let files = find();
        let before = files.read();
        write(&host.join("cpu"), 1100);
        write(&group.join("cpu.pressure"), 310);
        assert_eq!(files.read().since(&before), Duration::from_micros(300));
        write(&host.join("memory"), 2000);
        assert_eq!(files.read().since(&before), Duration::from_micros(1500));
        // A missing counter, or one that is not a number, is ignored.
        fs::write(host.join("memory"), "some total=many\n").unwrap();
        fs::remove_file(group.join("cpu.pressure")).unwrap();
        assert_eq!(files.read().since(&before), Duration::from_micros(100));
        assert_eq!(before.since(&files.read()), Duration::ZERO);
    }
}
