//! Limits of this process's control groups (kernel documentation, admin-guide/cgroup-v2 and
//! cgroup-v1).

use std::path::{Path, PathBuf};

use longhaul_core::host_check::Reading;
use longhaul_core::units::Bytes;

use super::kernel_tree::{KernelTree, read};

/// Mount points of version 2: alone, or beside version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Directory with the mount points of version 1's controllers.
const ROOT_V1: &str = "/sys/fs/cgroup";
/// Larger limits of version 1 mean none: the kernel writes LONG_MAX, rounded down to a page.
const UNLIMITED_V1: u64 = 1 << 62;

/// The cgroup version that controls a resource; file names differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Returns the memory left below the limits; inactive page cache counts as free.
pub(super) fn memory_left(tree: &KernelTree) -> Reading<Option<Bytes>> {
    let (version, groups) = groups_with(tree, "memory")?;
    Ok(groups.iter().filter_map(|group| group_memory(version, group)).min())
}

fn group_memory(version: Version, group: &Path) -> Option<Bytes> {
    let number = |name: &str| read(&group.join(name)).ok()?.parse::<u64>().ok();
    let (limits, usage, cache) = match version {
        // Above memory.high the kernel throttles the group.
        Version::Two => (&["memory.max", "memory.high"][..], "memory.current", "inactive_file "),
        Version::One => (&["memory.limit_in_bytes"][..], "memory.usage_in_bytes", "total_inactive_file "),
    };
    // "max" means no limit.
    let limit = limits.iter().filter_map(|name| number(name)).filter(|limit| *limit < UNLIMITED_V1).min()?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix(cache)?.parse::<u64>().ok());
    let used = number(usage)?.saturating_sub(cache.unwrap_or(0));
    Some(Bytes::new(limit.saturating_sub(used)))
}

/// Returns the CPU quota in thousandths of a processor.
pub(super) fn cpu_thousandths(tree: &KernelTree) -> Reading<Option<u64>> {
    let (version, groups) = groups_with(tree, "cpu")?;
    Ok(groups.iter().filter_map(|group| group_quota(version, group)).min())
}

fn group_quota(version: Version, group: &Path) -> Option<u64> {
    match version {
        Version::Two => quota(&read(&group.join("cpu.max")).ok()?),
        // -1 means no quota.
        Version::One => {
            let number = |name: &str| read(&group.join(name)).ok();
            quota(&format!("{} {}", number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?))
        }
    }
}

/// Parses "200000 100000" (microseconds of CPU time per period); `None` for "max 100000".
fn quota(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    quota.saturating_mul(1000).checked_div(period)
}

/// Returns this process's group and its ancestors, in the version that controls a resource.
fn groups_with(tree: &KernelTree, controller: &str) -> Reading<(Version, Vec<PathBuf>)> {
    let own = tree.text("/proc/self/cgroup")?;
    let mut seen = None;
    if let Some(own) = own.lines().find_map(|line| line.strip_prefix("0::/")) {
        match groups_of_version_2(tree, controller, own) {
            Ok(groups) => return Ok((Version::Two, groups)),
            Err(why) => seen = Some(why),
        }
    }
    // "4:cpu,cpuacct:/group": a number, the controllers, the path.
    let of_version_1 = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(":/")?;
        controllers.split(',').any(|name| name == controller).then_some((controllers, path))
    });
    let Some((controllers, own)) = of_version_1 else {
        return Err(
            seen.unwrap_or_else(|| format!("/proc/self/cgroup: no control group controls {controller}"))
        );
    };
    // Distributions mount "cpu,cpuacct" with symbolic links of single names.
    let mounts = [controllers, controller].map(|name| format!("{ROOT_V1}/{name}"));
    let mounted = mounts.iter().map(|mount| tree.path(mount)).find(|root| root.is_dir());
    let root = mounted.ok_or_else(|| format!("{}: not mounted", mounts[0]))?;
    Ok((Version::One, from_root_to(&root, own)))
}

fn groups_of_version_2(tree: &KernelTree, controller: &str, own: &str) -> Reading<Vec<PathBuf>> {
    let mut seen = String::from("no cgroup2 file system below /sys/fs/cgroup");
    for root in ROOTS {
        match tree.words(&format!("{root}/cgroup.controllers")) {
            Ok(controllers) if controllers.iter().any(|name| name == controller) => {
                return Ok(from_root_to(&tree.path(root), own));
            }
            Ok(_) => {
                seen = format!("{root}/cgroup.controllers: version 2 does not control {controller} here")
            }
            Err(_) => {}
        }
    }
    Err(seen)
}

/// Returns a group and its ancestors up to the root.
fn from_root_to(root: &Path, group: &str) -> Vec<PathBuf> {
    let group = root.join(group);
    group.ancestors().take_while(|group| group.starts_with(root)).map(Path::to_owned).collect()
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
    fn groups_without_limits_and_quotas_that_make_no_sense_are_none() {
        let (_dir, found) =
            tree(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")]);
        assert_eq!((memory_left(&found), cpu_thousandths(&found)), (Ok(None), Ok(None)));
        for text in ["max 100000", "-1 100000", "", "100000", "x y", "1 0"] {
            assert_eq!(quota(text), None, "{text}");
        }
    }

    #[test]
    fn limits_of_version_1_count_where_version_2_controls_nothing() {
        let (_dir, found) = tree(&[
            ("proc/self/cgroup", "5:memory:/a/b\n3:cpu,cpuacct:/a\n0::/\n"),
            ("sys/fs/cgroup/unified/cgroup.controllers", "\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "10000\n"),
            ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "7000\n"),
            ("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(memory_left(&found), Ok(Some(Bytes::new(5000))));
        assert_eq!(cpu_thousandths(&found), Ok(Some(500)));
    }

    #[test]
    fn controllers_that_are_nowhere_are_named() {
        let (_dir, mixed) =
            tree(&[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/unified/cgroup.controllers", "\n")]);
        assert!(memory_left(&mixed).unwrap_err().contains("does not control memory"));
        let (_dir, old) = tree(&[("proc/self/cgroup", "4:memory:/x\n")]);
        assert!(cpu_thousandths(&old).unwrap_err().contains("no control group controls cpu"));
        assert!(memory_left(&old).unwrap_err().contains("memory: not mounted"));
        let (_dir, unmounted) = tree(&[("proc/self/cgroup", "0::/\n")]);
        assert!(memory_left(&unmounted).unwrap_err().contains("no cgroup2 file system"));
    }
}
