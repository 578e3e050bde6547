//! Kernel settings of TCP. Each network namespace has its own; a few exist in the first one only.

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
    }
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
            // Other values than 0 and 1 have a meaning too (tcp_timestamps = 2).
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
}
