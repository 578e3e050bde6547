//! Processors, memory and resource limits of this process.

use longhaul_core::host_check::{FileLimits, Reading, ResourceFacts};
use longhaul_core::units::Bytes;
use rustix::process::{Resource, getrlimit};

use super::cgroup;
use super::kernel_tree::KernelTree;
use super::processors;

pub(super) fn facts(tree: &KernelTree) -> ResourceFacts {
    ResourceFacts {
        governors: processors::governors(tree),
        memory: available(tree),
        files: Ok(open_files()),
        group_memory: cgroup::memory_left(tree),
        group_cpu_thousandths: cgroup::cpu_thousandths(tree),
    }
}

/// Returns the kernel's estimate of memory available without swapping.
fn available(tree: &KernelTree) -> Reading<Bytes> {
    const FILE: &str = "/proc/meminfo";
    let text = tree.text(FILE)?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|value| value.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(Bytes::kib).ok_or_else(|| format!("{FILE}: no MemAvailable"))
}

fn open_files() -> FileLimits {
    let limit = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    FileLimits { soft: limit.current.unwrap_or(u64::MAX), hard: limit.maximum.unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::super::kernel_tree::tests::tree;
    use super::*;

    #[test]
    fn memory_is_the_kernels_estimate() {
        let (_dir, found) = tree(&[("proc/meminfo", "MemTotal:  9 kB\nMemAvailable:   2048 kB\n")]);
        assert_eq!(available(&found), Ok(Bytes::mib(2)));
        let (_dir, old) = tree(&[("proc/meminfo", "MemTotal:  9 kB\n")]);
        assert_eq!(available(&old), Err("/proc/meminfo: no MemAvailable".to_owned()));
    }
}
