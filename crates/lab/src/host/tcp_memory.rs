//! Counts TCP memory pressure events of a host's kernel.

use std::fs::File;
use std::io;

use crate::error::LabError;

use super::read_again;

/// The counters of the calling thread's network namespace; once opened, any thread can read them.
const COUNTERS: &str = "/proc/thread-self/net/netstat";

/// A host's TCP counters. An open file stays bound to the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct TcpMemoryPressure {
    counters: File,
}

impl TcpMemoryPressure {
    /// Opens the counters of the calling thread's network namespace.
    ///
    /// Must run before the process creates a PID namespace: `/proc` has to show the calling thread.
    pub(super) fn of_this_thread() -> Result<Self, LabError> {
        let counters = File::open(COUNTERS).map_err(failed("open"))?;
        Ok(Self { counters })
    }

    /// Returns how often TCP entered memory pressure (`net.ipv4.tcp_mem`).
    pub(super) fn pressures(&self) -> Result<u64, LabError> {
        let text = read_again(&self.counters).map_err(failed("read"))?;
        find(&text, "TCPMemoryPressures")
            .ok_or_else(|| failed("find TCPMemoryPressures in")(io::ErrorKind::InvalidData.into()))
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> LabError {
    LabError::host(format!("{what} {COUNTERS}"))
}

/// Returns a counter from a line of names and a line of values, both prefixed with "TcpExt:".
fn find(counters: &str, name: &str) -> Option<u64> {
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let (_, value) = names.split_whitespace().zip(values.split_whitespace()).find(|(is, _)| *is == name)?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_counter_by_its_name() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: B\nIpExt: 3\n";
        assert_eq!(find(text, "B"), Some(2));
        assert_eq!(find(text, "C"), None);
    }

    #[test]
    fn counter_of_this_kernel_can_be_read_repeatedly() {
        let memory = TcpMemoryPressure::of_this_thread().unwrap();
        let first = memory.pressures().unwrap();
        assert!(memory.pressures().unwrap() >= first);
        assert_ne!(find(&read_again(&memory.counters).unwrap(), "TCPOrigDataSent"), None);
    }
}
