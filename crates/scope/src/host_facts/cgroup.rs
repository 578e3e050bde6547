//! Limits of the control groups that this process is in (version 2).

use std::path::{Path, PathBuf};

use longhaul_core::host_check::Reading;
use longhaul_core::units::Bytes;

use super::kernel_tree::{KernelTree, read};

/// Where version 2 is mounted: alone, or beside version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Returns what the memory limits leave; page cache that was not used lately makes room.
pub(super) fn memory_left(tree: &KernelTree) -> Reading<Option<Bytes>> {
    let groups = groups_with(tree, "memory")?;
    Ok(groups.iter().filter_map(|group| group_memory(group)).min())
}

fn group_memory(group: &Path) -> Option<Bytes> {
    let number = |name: &str| read(&group.join(name)).ok()?.parse::<u64>().ok();
    // "max" where there is no limit; memory.high slows down what exceeds it.
    let limit = [number("memory.max"), number("memory.high")].into_iter().flatten().min()?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    let used = number("memory.current")?.saturating_sub(cache.unwrap_or(0));
    Some(Bytes::new(limit.saturating_sub(used)))
}

/// Returns the processors that the quotas allow, in thousandths.
pub(super) fn cpu_thousandths(tree: &KernelTree) -> Reading<Option<u64>> {
    let groups = groups_with(tree, "cpu")?;
    Ok(groups.iter().filter_map(|group| quota(&read(&group.join("cpu.max")).ok()?)).min())
}

/// Reads "200000 100000" (microseconds of CPU time in a period); `None` for "max 100000".
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    quota.saturating_mul(1000).checked_div(period)
}

/// Returns the group of this process and all above it, where version 2 controls a resource.
fn groups_with(tree: &KernelTree, controller: &str) -> Reading<Vec<PathBuf>> {
    let own = tree.text("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.ok_or("/proc/self/cgroup: this process is in no control group of version 2")?;
    let mut seen = String::from("no cgroup2 file system below /sys/fs/cgroup");
    for root in ROOTS {
        match tree.words(&format!("{root}/cgroup.controllers")) {
            Ok(controllers) if controllers.iter().any(|name| name == controller) => {
                let root = tree.path(root);
                let groups = root.join(own);
                return Ok(groups
                    .ancestors()
                    .take_while(|group| group.starts_with(&root))
                    .map(Path::to_owned)
                    .collect());
            }
            Ok(_) => {
                seen = format!("{root}/cgroup.controllers: version 2 does not control {controller} here")
            }
            Err(_) => {}
        }
    }
    Err(seen)
}

#[cfg(test)]
mod tests {
    use super::super::kernel_tree::tests::tree;
    use super::*;

    #[test]
    fn lowest_limit_of_all_groups_above_counts() {
        let (_dir, found) = tree(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            ("sys/fs/cgroup/a/memory.max", "10000\n"),
            ("sys/fs/cgroup/a/memory.high", "8000\n"),
            ("sys/fs/cgroup/a/memory.current", "3000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 1000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1\n"),
            ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
        ]);
        assert_eq!(memory_left(&found), Ok(Some(Bytes::new(6000))));
        assert_eq!(cpu_thousandths(&found), Ok(Some(1500)));
    }

    #[test]
    fn groups_without_limits_have_none() {
        let (_dir, found) =
            tree(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")]);
        assert_eq!((memory_left(&found), cpu_thousandths(&found)), (Ok(None), Ok(None)));
    }

    #[test]
    fn version_1_is_named() {
        let (_dir, mixed) = tree(&[
            ("proc/self/cgroup", "4:memory:/x\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
        ]);
        assert!(memory_left(&mixed).unwrap_err().contains("does not control memory"));
        let (_dir, old) = tree(&[("proc/self/cgroup", "4:memory:/x\n")]);
        assert!(cpu_thousandths(&old).unwrap_err().contains("no control group of version 2"));
        let (_dir, unmounted) = tree(&[("proc/self/cgroup", "0::/\n")]);
        assert!(memory_left(&unmounted).unwrap_err().contains("no cgroup2 file system"));
    }

    #[test]
    fn quotas_that_make_no_sense_are_none() {
        for text in ["max 100000", "", "100000", "x y", "1 0"] {
            assert_eq!(quota(text), None, "{text}");
        }
    }
}
