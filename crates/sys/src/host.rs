//! This host's limits, as reported by the kernel.

use std::fs;
use std::path::Path;
use std::time::Duration;

use longhaul_core::telemetry::HostPages;
use longhaul_core::units::{Bytes, Rate};
use nix::time::ClockId;

/// Returns the receive buffer's autotuning limit, `net.ipv4.tcp_rmem[2]`.
pub fn tcp_rmem_max() -> Option<Bytes> {
    sysctl("net/ipv4/tcp_rmem")?.split_whitespace().nth(2)?.parse().ok().map(Bytes::new)
}

/// Returns the default congestion control.
pub fn congestion_control() -> Option<String> {
    Some(sysctl("net/ipv4/tcp_congestion_control")?.trim().to_owned())
}

/// Returns the congestion controls that every process may set; none if the kernel does not tell.
pub fn allowed_congestion_controls() -> Vec<String> {
    words("net/ipv4/tcp_allowed_congestion_control")
}

/// Returns the congestion controls that the kernel has loaded; none if it does not tell.
pub fn available_congestion_controls() -> Vec<String> {
    words("net/ipv4/tcp_available_congestion_control")
}

/// Returns the send buffer's autotuning limit, `net.ipv4.tcp_wmem[2]`.
pub fn tcp_wmem_max() -> Option<Bytes> {
    sysctl("net/ipv4/tcp_wmem")?.split_whitespace().nth(2)?.parse().ok().map(Bytes::new)
}

/// Returns whether the kernel offers window scaling, `net.ipv4.tcp_window_scaling`.
pub fn window_scaling() -> Option<bool> {
    Some(sysctl("net/ipv4/tcp_window_scaling")?.trim() != "0")
}

/// Returns the limit of an unprivileged SO_RCVBUF, `net.core.rmem_max`.
pub fn rmem_max() -> Option<Bytes> {
    sysctl("net/core/rmem_max")?.trim().parse().ok().map(Bytes::new)
}

/// Returns the highest reported speed of the network interfaces that are up.
pub fn fastest_interface() -> Option<Rate> {
    let speeds = fs::read_dir("/sys/class/net").ok()?.flatten().filter_map(|interface| {
        let read = |name| fs::read_to_string(interface.path().join(name)).ok();
        let up = read("operstate")?.trim() == "up";
        // In Mbit/s; -1, signed or unsigned, if unknown.
        let mbits: u32 = read("speed")?.trim().parse().ok()?;
        (up && mbits != u32::MAX).then_some(Rate::bits_per_sec(u64::from(mbits) * 1_000_000))
    });
    speeds.max()
}

/// Returns the pages of all files that are dirty or in write-back; takes about 20 microseconds.
pub fn waiting_pages() -> Option<HostPages> {
    waiting(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Returns the memory available to this process without swapping, by the kernel's estimate and the
/// limits of its control groups.
pub fn available_memory() -> Option<Bytes> {
    let host = entry(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(cgroup_memory().map_or(host, |left| left.min(host)))
}

/// Returns the memory left by the control groups, version 2 only; `None` without a limit.
fn cgroup_memory() -> Option<Bytes> {
    const ROOT: &str = "/sys/fs/cgroup";
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = Path::new(ROOT).join(groups.lines().find_map(|line| line.strip_prefix("0::/"))?);
    own.ancestors().take_while(|group| group.starts_with(ROOT)).filter_map(group_memory).min()
}

/// Returns the memory left by one control group; inactive page cache counts as available.
fn group_memory(group: &Path) -> Option<Bytes> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    // "max" without a limit.
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let cache = read("memory.stat").and_then(|stat| {
        stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok())
    });
    Some(Bytes::new(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0)))))
}

fn waiting(meminfo: &str) -> Option<HostPages> {
    Some(HostPages { dirty: entry(meminfo, "Dirty:")?, writeback: entry(meminfo, "Writeback:")? })
}

/// Reads an entry of proc_meminfo(5) in KiB.
fn entry(meminfo: &str, name: &str) -> Option<Bytes> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.parse().ok().map(Bytes::kib)
}

/// Returns the CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    cpu_time(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// The CPU time clock of one thread, readable by other threads.
///
/// After the thread has ended, the kernel may reuse its number: a clock must only be read while its
/// thread is known to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadClock(ClockId);

impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub fn current() -> Self {
        // The format of clock_getcpuclockid(3): the complement of the number, the kind of clock
        // (CPUCLOCK_SCHED) and the bit of a thread clock (CPUCLOCK_PERTHREAD_MASK).
        const SCHED: libc::clockid_t = 2;
        const PER_THREAD: libc::clockid_t = 4;
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        Self(ClockId::from_raw(!thread << 3 | SCHED | PER_THREAD))
    }

    /// Reads the clock; `None` if the thread has ended.
    pub fn cpu_time(self) -> Option<Duration> {
        cpu_time(self.0)
    }
}

/// Reads a clock. It may be negative where a library shifts the clocks of the process.
fn cpu_time(clock: ClockId) -> Option<Duration> {
    let time = clock.now().ok()?;
    Some(Duration::new(time.tv_sec().unsigned_abs(), time.tv_nsec().unsigned_abs() as u32))
}

fn words(name: &str) -> Vec<String> {
    sysctl(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_limits_and_pages_are_read() {
        assert!(tcp_rmem_max().unwrap() > Bytes::kib(4) && tcp_wmem_max().unwrap() > Bytes::kib(4));
        // In a separate network namespace `rmem_max` may be hidden.
        assert!(rmem_max().is_none_or(|max| max > Bytes::kib(1)));
        let text =
            "Cached: 1 kB\nDirty:              3100 kB\nWriteback:             0 kB\nWritebackTmp: 9 kB\n";
        assert_eq!(waiting(text), Some(HostPages { dirty: Bytes::kib(3100), writeback: Bytes::ZERO }));
        assert_eq!(waiting(text.rsplit_once("Writeback:").unwrap().0), None);
        assert_eq!(waiting("Dirty: many kB\nWriteback: 0 kB\n"), None);
        assert!(waiting_pages().is_some() && available_memory().unwrap() > Bytes::mib(1));
    }

    #[test]
    fn control_group_limits_available_memory() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path();
        let write = |name: &str, text: &str| fs::write(group.join(name), text).unwrap();
        assert_eq!(group_memory(group), None);
        write("memory.max", "max\n");
        write("memory.current", "3000\n");
        assert_eq!(group_memory(group), None);
        write("memory.max", "10000\n");
        assert_eq!(group_memory(group), Some(Bytes::new(7000)));
        write("memory.stat", "anon 1\ninactive_file 1000\nactive_file 9\n");
        assert_eq!(group_memory(group), Some(Bytes::new(8000)));
        write("memory.max", "100\n");
        assert_eq!(group_memory(group), Some(Bytes::ZERO));
    }

    #[test]
    fn thread_clock_is_readable_from_another_thread() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let worker = std::thread::spawn(move || {
            let before = thread_cpu_time();
            while thread_cpu_time() - before < Duration::from_millis(20) {}
            sender.send((ThreadClock::current(), thread_cpu_time())).unwrap();
            let _ = ended.recv();
        });
        let (clock, own) = receiver.recv().unwrap();
        let read = clock.cpu_time().unwrap();
        assert!(read >= own && read < own + Duration::from_millis(20), "{read:?} {own:?}");
        assert!(ThreadClock::current() != clock && ThreadClock::current().cpu_time().is_some());
        drop(end);
        worker.join().unwrap();
        // The kernel frees the number shortly after the join.
        let gone = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            clock.cpu_time().is_none()
        });
        assert!(gone);
    }
}
