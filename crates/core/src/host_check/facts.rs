//! What was read of a host.

use std::path::PathBuf;
use std::time::Duration;

use crate::units::{Bytes, Rate};

/// A value, or why it could not be read (path or call, and the system's reason).
pub type Reading<T> = Result<T, String>;

/// All that the checks look at.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFacts {
    /// The running kernel.
    pub kernel: Reading<KernelVersion>,
    /// Limits of socket buffers.
    pub buffers: BufferFacts,
    /// Options of TCP.
    pub tcp: TcpFacts,
    /// Congestion controls.
    pub congestion: CongestionFacts,
    /// The outgoing network device; an error where there is no route.
    pub device: Reading<DeviceFacts>,
    /// Where files are written.
    pub disk: DiskFacts,
    /// Processors, memory and limits of the process.
    pub resources: ResourceFacts,
}

/// A kernel's version: major, minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

/// Limits of socket buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferFacts {
    /// `net.ipv4.tcp_rmem`.
    pub tcp_rmem: Reading<AutotuneLimits>,
    /// `net.ipv4.tcp_wmem`.
    pub tcp_wmem: Reading<AutotuneLimits>,
    /// `net.core.rmem_max`.
    pub rmem_max: Reading<Bytes>,
    /// `net.core.wmem_max`.
    pub wmem_max: Reading<Bytes>,
    /// `net.ipv4.tcp_mem`.
    pub tcp_mem: Reading<TcpMemory>,
    /// `net.ipv4.tcp_adv_win_scale`.
    pub adv_win_scale: Reading<i32>,
}

/// The three values of `tcp_rmem` or `tcp_wmem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutotuneLimits {
    /// Guaranteed under memory pressure.
    pub min: Bytes,
    /// At a connection's start.
    pub default: Bytes,
    /// The limit of the kernel's autotuning.
    pub max: Bytes,
}

/// The three values of `tcp_mem`, in pages of all TCP sockets together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpMemory {
    /// Below it nothing is limited.
    pub low: u64,
    /// From it on the kernel shrinks buffers.
    pub pressure: u64,
    /// Beyond it the kernel drops packets.
    pub limit: u64,
    /// The size of a page.
    pub page: Bytes,
}

/// Options of TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpFacts {
    /// `net.ipv4.tcp_window_scaling`.
    pub window_scaling: Reading<bool>,
    /// `net.ipv4.tcp_sack`.
    pub sack: Reading<bool>,
    /// `net.ipv4.tcp_timestamps`.
    pub timestamps: Reading<bool>,
    /// `net.ipv4.tcp_slow_start_after_idle`.
    pub slow_start_after_idle: Reading<bool>,
    /// `net.ipv4.tcp_mtu_probing`: 0 off, 1 after a black hole is detected, 2 always.
    pub mtu_probing: Reading<u8>,
}

/// Congestion controls, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionFacts {
    /// Of sockets that choose none.
    pub current: Reading<String>,
    /// That the kernel has loaded.
    pub available: Reading<Vec<String>>,
    /// That processes without CAP_NET_ADMIN may choose.
    pub allowed: Reading<Vec<String>>,
    /// The modules of this kernel, loaded or not: tcp_bbr.
    pub modules: Reading<Vec<String>>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Whether it leads to this host itself.
    pub is_loopback: bool,
    /// Its MTU in bytes.
    pub mtu: Reading<u32>,
    /// Its queueing discipline.
    pub qdisc: Reading<Qdisc>,
    /// The rate of its link.
    pub speed: Reading<Rate>,
    /// What decides that rate.
    pub negotiation: Reading<LinkNegotiation>,
    /// What it does, or the kernel for it, with many packets at once.
    pub offloads: Reading<Vec<Offload>>,
    /// Its descriptor rings.
    pub rings: Reading<RingSizes>,
    /// Its place among the processors.
    pub numa: Reading<NumaFacts>,
}

/// The modes of a device's link, by their rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkNegotiation {
    /// Whether both ends choose the fastest mode that both offer; else the mode is fixed.
    pub is_on: bool,
    /// Whether the device can negotiate.
    pub is_possible: bool,
    /// The fastest mode of the device; none where the driver names no modes.
    pub fastest: Option<Rate>,
    /// The fastest mode that the device offers.
    pub fastest_offered: Option<Rate>,
    /// The fastest mode that the other end offers.
    pub fastest_of_peer: Option<Rate>,
}

/// A device's queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The kind at the root.
    pub root: String,
    /// The kinds below it, each once.
    pub children: Vec<String>,
    /// Whether the kernel has chosen the root by itself.
    pub is_default: bool,
}

/// An offload, by its short name in ethtool(8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offload {
    /// tso, gso, gro, sg, tx, rx.
    pub name: &'static str,
    /// Whether it is on.
    pub on: bool,
    /// The kernel's features of it that are off and that the device lets be switched on.
    pub switchable: Vec<&'static str>,
}

/// The sizes of descriptor rings, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSizes {
    /// For receiving.
    pub rx: u32,
    /// The largest that the device allows.
    pub rx_max: u32,
    /// For sending.
    pub tx: u32,
    /// The largest that the device allows.
    pub tx_max: u32,
}

/// Where a device is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumaFacts {
    /// The node of the device; `None` where it belongs to none.
    pub node: Option<u32>,
    /// The nodes of this host.
    pub nodes: u32,
    /// Whether this process may run on other nodes than the device's.
    pub runs_elsewhere: bool,
}

/// Where files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFacts {
    /// The directory.
    pub path: PathBuf,
    /// What this user can still write there.
    pub free: Reading<Bytes>,
    /// What Direct I/O needs there.
    pub direct_io: Reading<DirectIoFact>,
    /// The measurement; `None` where none was asked for.
    pub write_test: Option<Reading<WriteTest>>,
}

/// What a file system says of Direct I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIoFact {
    /// It needs this alignment.
    Aligned(Bytes),
    /// It has none.
    Impossible,
}

/// A short measurement of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteTest {
    /// All that was written.
    pub written: Bytes,
    /// From the first write to the end of the last.
    pub took: Duration,
    /// The longest time in which no write of any thread ended.
    pub stall: Duration,
    /// Whether the writes went past the page cache.
    pub direct: bool,
}

/// Processors, memory and limits of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceFacts {
    /// The processors' frequency governors in use, each once.
    pub governors: Reading<Vec<String>>,
    /// What can be had without swapping.
    pub memory: Reading<Bytes>,
    /// `RLIMIT_NOFILE`.
    pub files: Reading<FileLimits>,
    /// What the control groups' memory limits leave; `None` where none is set.
    pub group_memory: Reading<Option<Bytes>>,
    /// The processors that the control groups' quotas allow, in thousandths; `None` where there is
    /// no quota.
    pub group_cpu_thousandths: Reading<Option<u64>>,
}

/// How many files a process may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// The limit in force.
    pub soft: u64,
    /// What the process may raise it to.
    pub hard: u64,
}
