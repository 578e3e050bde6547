//! Kernel settings of TCP, per network namespace; some exist only in the initial one.

use longhaul_core::host_check::{AutotuneLimits, BufferFacts, CongestionFacts, Reading, TcpFacts, TcpMemory};
use longhaul_core::units::Bytes;

use super::kernel_tree::KernelTree;

pub(super) fn buffers(tree: &KernelTree) -> BufferFacts {
    let limits = |name: &str| -> Reading<AutotuneLimits> {
        let [min, default, max] = tree.three(&ipv4(name))?.map(Bytes::new);
        Ok(AutotuneLimits { min, default, max })
    };
    let page = Bytes::new(rustix::param::page_size() as u64);
    let memory = tree.three(&ipv4("tcp_mem"));
    BufferFacts {
        tcp_rmem: limits("tcp_rmem"),
        tcp_wmem: limits("tcp_wmem"),
        rmem_max: tree.value("/proc/sys/net/core/rmem_max").map(Bytes::new),
        wmem_max: tree.value("/proc/sys/net/core/wmem_max").map(Bytes::new),
        tcp_mem: memory.map(|[low, pressure, limit]| TcpMemory { low, pressure, limit, page }),
        adv_win_scale: tree.value(&ipv4("tcp_adv_win_scale")),
    }
}

pub(super) fn options(tree: &KernelTree) -> TcpFacts {
    let switch = |name: &str| tree.value::<i64>(&ipv4(name)).map(|value| value != 0);
    TcpFacts {
        window_scaling: switch("tcp_window_scaling"),
        sack: switch("tcp_sack"),
        timestamps: switch("tcp_timestamps"),
        slow_start_after_idle: switch("tcp_slow_start_after_idle"),
        mtu_probing: tree.value(&ipv4("tcp_mtu_probing")),
    }
}

pub(super) fn congestion(tree: &KernelTree) -> CongestionFacts {
    CongestionFacts {
        current: tree.text(&ipv4("tcp_congestion_control")),
        available: tree.words(&ipv4("tcp_available_congestion_control")),
        allowed: tree.words(&ipv4("tcp_allowed_congestion_control")),
        modules: modules(tree, &rustix::system::uname().release().to_string_lossy()),
    }
}

/// Returns the TCP modules listed in the kernel's `modules.dep` (depmod(8)), which modprobe(8)
/// reads.
fn modules(tree: &KernelTree, release: &str) -> Reading<Vec<String>> {
    let text = tree.text(&format!("/lib/modules/{release}/modules.dep"))?;
    // A line reads "kernel/net/ipv4/tcp_bbr.ko.xz: DEPENDENCIES".
    let name = |line: &str| {
        let (path, _) = line.split_once(".ko")?;
        let name = path.rsplit('/').next()?.replace('-', "_");
        name.starts_with("tcp_").then_some(name)
    };
    Ok(text.lines().filter_map(name).collect())
}

fn ipv4(name: &str) -> String {
    format!("/proc/sys/net/ipv4/{name}")
}

#[cfg(test)]
mod tests {
    use super::super::kernel_tree::tests::tree;
    use super::*;

    #[test]
    fn settings_are_read_and_hidden_ones_named() {
        let (_dir, tree) = tree(&[
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/ipv4/tcp_sack", "0\n"),
            // Values besides 0 and 1 are valid (tcp_timestamps = 2).
            ("proc/sys/net/ipv4/tcp_timestamps", "2\n"),
            ("proc/sys/net/ipv4/tcp_adv_win_scale", "-2\n"),
            ("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic\n"),
        ]);
        let buffers = buffers(&tree);
        assert_eq!(buffers.tcp_rmem.unwrap().max, Bytes::mib(6));
        assert_eq!(buffers.adv_win_scale, Ok(-2));
        assert!(buffers.rmem_max.unwrap_err().contains("net/core/rmem_max"));
        let options = options(&tree);
        assert_eq!((options.sack, options.timestamps), (Ok(false), Ok(true)));
        assert!(options.mtu_probing.is_err());
        assert_eq!(congestion(&tree).allowed.unwrap(), ["reno", "cubic"]);
    }

    #[test]
    fn modules_of_tcp_are_those_of_the_running_kernel() {
        let listed = "kernel/net/ipv4/tcp_bbr.ko.xz:\nkernel/net/ipv4/tcp-diag.ko: kernel/net/ipv4/inet_diag.ko\n\
                      kernel/net/tls/tls.ko.zst: kernel/net/ipv4/tcp_x.ko\nnonsense\n";
        let (_dir, tree) = tree(&[("lib/modules/6.1.0-18-amd64/modules.dep", listed)]);
        assert_eq!(modules(&tree, "6.1.0-18-amd64").unwrap(), ["tcp_bbr", "tcp_diag"]);
        let absent = modules(&tree, "6.18").unwrap_err();
        assert!(absent.contains("lib/modules/6.18/modules.dep: No such file"), "{absent}");
    }
}
