//! Kernel files of a host's network: the TCP ports on which it listens, and its TCP counters.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::LabError;

const COUNTERS: &str = "/proc/thread-self/net/netstat";
const SOCKETS: &str = "/proc/thread-self/net/tcp";
/// Missing if the kernel has no IPv6.
const SOCKETS_V6: &str = "/proc/thread-self/net/tcp6";

/// The files of one host; any thread can read them.
#[derive(Debug)]
pub(super) struct NetworkFiles {
    counters: NetworkFile,
    sockets: Vec<NetworkFile>,
}

/// An open file, which stays bound to the network namespace in which it was opened.
#[derive(Debug)]
struct NetworkFile {
    path: &'static str,
    file: File,
}

impl NetworkFiles {
    /// Opens the files of the calling thread's network namespace.
    ///
    /// Must run before the process creates a PID namespace: `/proc` has to show the calling thread.
    pub(super) fn of_this_thread() -> Result<Self, LabError> {
        let mut sockets = vec![NetworkFile::open(SOCKETS)?];
        sockets.extend(NetworkFile::open(SOCKETS_V6).ok());
        Ok(Self { counters: NetworkFile::open(COUNTERS)?, sockets })
    }

    /// Returns whether a TCP socket listens on `port`, at any address.
    pub(super) fn listens_on(&self, port: u16) -> Result<bool, LabError> {
        for list in &self.sockets {
            if list.text()?.lines().any(|line| listening_port(line) == Some(port)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns how often TCP entered memory pressure (`net.ipv4.tcp_mem`).
    pub(super) fn memory_pressures(&self) -> Result<u64, LabError> {
        const NAME: &str = "TCPMemoryPressures";
        let missing =
            || LabError::host(format!("find {NAME} in {COUNTERS}"))(io::ErrorKind::InvalidData.into());
        counter(&self.counters.text()?, NAME).ok_or_else(missing)
    }
}

impl NetworkFile {
    fn open(path: &'static str) -> Result<Self, LabError> {
        let file = File::open(path).map_err(LabError::host(format!("open {path}")))?;
        Ok(Self { path, file })
    }

    /// Reads the file from its start.
    fn text(&self) -> Result<String, LabError> {
        let (mut text, mut chunk) = (Vec::new(), [0; 16 << 10]);
        loop {
            let read = self.file.read_at(&mut chunk, text.len() as u64);
            match read.map_err(LabError::host(format!("read {}", self.path)))? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                len => text.extend_from_slice(&chunk[..len]),
            }
        }
    }
}

/// Returns the port of a listening socket's line: "0: ADDRESS:PORT ADDRESS:PORT STATE ...", in
/// hexadecimal.
fn listening_port(line: &str) -> Option<u16> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let (_, port) = local.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok().filter(|_| state == LISTEN)
}

/// Returns a counter from a line of names and a line of values, both prefixed with "TcpExt:".
fn counter(counters: &str, name: &str) -> Option<u64> {
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let (_, value) = names.split_whitespace().zip(values.split_whitespace()).find(|(is, _)| *is == name)?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listener_is_seen_until_closed() {
        let files = NetworkFiles::of_this_thread().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(files.listens_on(port).unwrap());
        drop(socket);
        assert!(!files.listens_on(port).unwrap());
    }

    #[test]
    fn a_connection_does_not_listen() {
        assert_eq!(listening_port("0: 0100007F:1F90 00000000:0000 0A 00000000"), Some(8080));
        assert_eq!(listening_port("0: 0100007F:1F90 0100007F:0050 01 00000000"), None);
        assert_eq!(listening_port("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn finds_a_counter_by_its_name() {
        let text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: B\nIpExt: 3\n";
        assert_eq!(counter(text, "B"), Some(2));
        assert_eq!(counter(text, "C"), None);
    }

    #[test]
    fn counter_of_this_kernel_can_be_read_repeatedly() {
        let files = NetworkFiles::of_this_thread().unwrap();
        let first = files.memory_pressures().unwrap();
        assert!(files.memory_pressures().unwrap() >= first);
        assert_ne!(counter(&files.counters.text().unwrap(), "TCPOrigDataSent"), None);
    }
}
