//! The way to the sockets of a running process: its network namespace, its connections, and why it
//! cannot be observed.

use std::collections::HashSet;
use std::io;
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_sys::netns;
use longhaul_sys::sock_diag::{self, SocketReader, TcpConnection};

/// Maximum interval between searches for connections: a known socket may connect later. A search
/// takes about 1 ms on a large host.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Moves the calling thread into the network namespace of a process, if it is a different one.
pub(super) fn enter_network_of(process: u32) -> Result<(), Failure> {
    let path = format!("/proc/{process}/ns/net");
    let own = std::fs::read_link("/proc/thread-self/ns/net");
    match std::fs::read_link(&path) {
        Ok(theirs) if own.as_ref().is_ok_and(|own| *own == theirs) => Ok(()),
        Ok(_) => std::fs::File::open(&path)
            .and_then(netns::enter_network)
            .map_err(|_| {
                let message = format!(
                    "cannot enter the network namespace of process {process}, where TCP_INFO of its sockets would show what limits each: \
                     only root can read them from outside; run this as root, or within the container"
                );
                Failure::new(FailureKind::Denied, message)
            }),
        Err(error) => Err(of_proc(process, &error)),
    }
}

fn no_process(process: u32) -> Failure {
    Failure::new(FailureKind::NotFound, format!("there is no process {process}"))
}

fn of_kernel(process: u32, error: &io::Error) -> Failure {
    let what = format!("cannot read the sockets of process {process} from the kernel: {error}");
    Failure::new(FailureKind::Host, format!("{what}; it needs inet_diag (modprobe tcp_diag)"))
}

fn of_proc(process: u32, error: &io::Error) -> Failure {
    // The files of a process that has ended belong to root.
    if error.kind() == io::ErrorKind::PermissionDenied && !has_ended(process) {
        let message = format!(
            "cannot list the sockets of process {process}, of which TCP_INFO would show what limits each: it belongs to another user; \
             run this as that user, or as root"
        );
        Failure::new(FailureKind::Denied, message)
    } else {
        no_process(process)
    }
}

/// Returns whether a process has ended, and its parent has not read how.
fn has_ended(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold any character.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('Z'))
}

/// The TCP connections of a process.
pub(super) struct ProcessConnections {
    process: u32,
    reader: SocketReader,
    /// The connections at the last reading.
    pub(super) known: Vec<TcpConnection>,
    /// The ports on which the process accepted connections at the last search: there it is the
    /// server.
    pub(super) listening: HashSet<u16>,
    /// All sockets of the process at the last search, of any type.
    searched: HashSet<u32>,
    next_search: Duration,
}

impl ProcessConnections {
    pub(super) fn of(process: u32) -> Result<Self, Failure> {
        let reader = SocketReader::open().map_err(|error| of_kernel(process, &error))?;
        Ok(Self {
            process,
            reader,
            known: Vec::new(),
            listening: HashSet::new(),
            searched: HashSet::new(),
            next_search: Duration::ZERO,
        })
    }

    /// Reads the connections; searches again if the process has new sockets or the last search is
    /// too old.
    pub(super) fn read(&mut self, now: Duration) -> Result<(), Failure> {
        let process = self.process;
        let inodes = sock_diag::socket_inodes(process).map_err(|error| of_proc(process, &error))?;
        if inodes.is_empty() && has_ended(process) {
            return Err(no_process(process));
        }
        let failed = |error| of_kernel(process, &error);
        if now >= self.next_search || !inodes.is_subset(&self.searched) {
            self.known = sock_diag::connections(&inodes).map_err(failed)?;
            self.listening = sock_diag::listening_ports(&inodes).map_err(failed)?;
            self.searched = inodes;
            self.next_search = now + SEARCH_INTERVAL;
        } else {
            let open = self.known.iter().filter(|socket| inodes.contains(&socket.inode));
            let again: io::Result<_> =
                open.filter_map(|socket| self.reader.read(socket).transpose()).collect();
            self.known = again.map_err(failed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_are_found_when_they_are_made_and_dropped_when_closed() {
        const COUNT: usize = 250;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connections = ProcessConnections::of(std::process::id()).unwrap();
        connections.read(Duration::ZERO).unwrap();
        // New sockets trigger a search at once. Both ends are of this process.
        let connect =
            || (TcpStream::connect(listener.local_addr().unwrap()).unwrap(), listener.accept().unwrap());
        let sockets: Vec<_> = std::iter::repeat_with(connect).take(COUNT).collect();
        let locals: HashSet<_> = sockets.iter().map(|(socket, _)| socket.local_addr().unwrap()).collect();
        let at = SEARCH_INTERVAL / 10;
        let mut known_at = |time| {
            connections.read(time).unwrap();
            connections.known.iter().filter(|known| locals.contains(&known.local)).count()
        };
        assert_eq!([known_at(at), known_at(at * 2)], [COUNT; 2]);
        drop(sockets);
        assert_eq!(known_at(at * 3), 0);
        assert!(connections.listening.contains(&listener.local_addr().unwrap().port()));
    }
}
