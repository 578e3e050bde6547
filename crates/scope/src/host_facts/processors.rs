//! Processors: frequency governors, and the NUMA node of the device.

use longhaul_core::host_check::{NumaFacts, Reading};
use longhaul_sys::link::Link;

use super::kernel_tree::KernelTree;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// Returns the distinct governors in use.
pub(super) fn governors(tree: &KernelTree) -> Reading<Vec<String>> {
    let mut cpus = tree.numbered(CPUS, "cpu")?;
    cpus.sort();
    let read = |cpu: &String| tree.text(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor"));
    // An offline processor has no governor.
    let mut governors: Vec<String> = cpus.iter().filter_map(|cpu| read(cpu).ok()).collect();
    governors.sort();
    governors.dedup();
    match cpus.first() {
        Some(first) if governors.is_empty() => read(first).map(|governor| vec![governor]),
        Some(_) => Ok(governors),
        None => Err(format!("{CPUS}: no processors")),
    }
}

/// Returns the NUMA node of a device.
///
/// `/sys` shows the network namespace that mounted it; the MAC address confirms that its device is
/// this one.
pub(super) fn numa(tree: &KernelTree, link: &Link) -> Reading<NumaFacts> {
    let directory = format!("/sys/class/net/{}", link.name);
    let index: u32 = tree.value(&format!("{directory}/ifindex"))?;
    let address = tree.text(&format!("{directory}/address"))?;
    if index != link.index || address != mac(&link.address) {
        return Err(format!("{directory} is a device of another network namespace"));
    }
    let nodes = tree.numbered(NODES, "node").map_or(1, |nodes| nodes.len().max(1));
    let node = match tree.value::<i64>(&format!("{directory}/device/numa_node")) {
        // -1: the firmware reports no node.
        Ok(node) => u32::try_from(node).ok(),
        // A virtual device, or a kernel without NUMA; with a single node the distance is zero.
        Err(_) if nodes == 1 => None,
        Err(error) => return Err(error),
    };
    let runs_elsewhere = node.is_some_and(|node| runs_elsewhere(tree, node));
    Ok(NumaFacts { node, nodes: nodes as u32, runs_elsewhere })
}

fn mac(address: &[u8]) -> String {
    address.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Returns whether this process may run outside `node`; true if unreadable.
fn runs_elsewhere(tree: &KernelTree, node: u32) -> bool {
    let of_node = tree.text(&format!("{NODES}/node{node}/cpulist")).ok().and_then(|list| cpu_list(&list));
    let status = tree.text("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).and_then(cpu_list);
    match (of_node, allowed) {
        (Some(of_node), Some(allowed)) => allowed.iter().any(|cpu| !of_node.contains(cpu)),
        _ => true,
    }
}

/// Parses "0-3,8" (cpuset(7), list format).
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    /// The largest CONFIG_NR_CPUS of x86-64.
    const MAX_CPUS: u32 = 8192;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_CPUS {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::super::kernel_tree::tests::tree;
    use super::*;

    fn link() -> Link {
        let (name, address) = ("eth0".to_owned(), vec![2, 0, 0, 0, 0, 0xfe]);
        Link { index: 2, name, mtu: None, is_loopback: false, kind: None, address }
    }

    const NET: [(&str, &str); 2] =
        [("sys/class/net/eth0/ifindex", "2\n"), ("sys/class/net/eth0/address", "02:00:00:00:00:fe\n")];

    #[test]
    fn governors_are_named_once_and_absent_ones_with_their_path() {
        let cpu = |n| format!("sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor");
        let (a, b, c) = (cpu(0), cpu(1), cpu(2));
        // A directory without a number is none of a processor.
        let other = ("sys/devices/system/cpu/cpufreq/boost", "1\n");
        let (_dir, found) = tree(&[(&a, "powersave\n"), (&b, "performance\n"), (&c, "powersave\n"), other]);
        assert_eq!(governors(&found).unwrap(), ["performance", "powersave"]);
        let (_dir, none) = tree(&[("sys/devices/system/cpu/cpu0/online", "1")]);
        assert!(governors(&none).unwrap_err().contains("cpu0/cpufreq/scaling_governor"));
    }

    #[test]
    fn node_of_a_device_and_of_the_process_are_compared() {
        let files = |allowed: &'static str| {
            let nodes = [
                ("sys/class/net/eth0/device/numa_node", "1\n"),
                ("sys/devices/system/node/node0/cpulist", "0-3\n"),
                ("sys/devices/system/node/node1/cpulist", "4-7\n"),
                ("proc/self/status", allowed),
            ];
            [&NET[..], &nodes].concat()
        };
        let (_dir, bound) = tree(&files("Name: x\nCpus_allowed_list:\t4-5,7\n"));
        assert_eq!(numa(&bound, &link()), Ok(NumaFacts { node: Some(1), nodes: 2, runs_elsewhere: false }));
        let (_dir, free) = tree(&files("Cpus_allowed_list:\t0-7\n"));
        assert!(numa(&free, &link()).unwrap().runs_elsewhere);
    }

    #[test]
    fn device_of_another_namespace_is_refused() {
        let (_dir, found) = tree(&NET);
        assert_eq!(numa(&found, &link()), Ok(NumaFacts { node: None, nodes: 1, runs_elsewhere: false }));
        let other = Link { index: 3, ..link() };
        assert!(numa(&found, &other).unwrap_err().contains("another network namespace"));
        let other = Link { address: vec![2, 0, 0, 0, 0, 1], ..link() };
        assert!(numa(&found, &other).is_err());
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(""), Some(Vec::new()));
        assert_eq!([cpu_list("a"), cpu_list("1-"), cpu_list("0-4294967295")], [None, None, None]);
    }
}
