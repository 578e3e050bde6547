//! The TCP ports on which an emulated host listens.

use std::fs::File;
use std::io;

use crate::error::LabError;

use super::read_again;

const SOCKETS: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];

/// The kernel's lists of a host's TCP sockets. An open file stays bound to the network namespace in which it was opened.
#[derive(Debug)]
pub(super) struct Listening {
    lists: Vec<File>,
}

impl Listening {
    /// Opens the lists of the calling thread's network namespace.
    ///
    /// Must run before the process creates a PID namespace: `/proc` has to show the calling thread.
    pub(super) fn of_this_thread() -> Result<Self, LabError> {
        let mut lists = Vec::new();
        for path in SOCKETS {
            match File::open(path) {
                Ok(list) => lists.push(list),
                // The kernel has no IPv6.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !lists.is_empty() => {}
                Err(cause) => return Err(LabError::host(format!("open {path}"))(cause)),
            }
        }
        Ok(Self { lists })
    }

    /// Returns whether a socket listens on `port`, at any address.
    pub(super) fn on(&self, port: u16) -> Result<bool, LabError> {
        for (list, path) in self.lists.iter().zip(SOCKETS) {
            let text = read_again(list).map_err(LabError::host(format!("read {path}")))?;
            if text.lines().any(|line| listening_port(line) == Some(port)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the port of a listening socket's line: "0: ADDRESS:PORT ADDRESS:PORT STATE ...", in hexadecimal.
fn listening_port(line: &str) -> Option<u16> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let (_, port) = local.rsplit_once(':')?;
    u16::from_str_radix(port, 16).ok().filter(|_| state == LISTEN)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listener_is_seen_until_closed() {
        let listening = Listening::of_this_thread().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(listening.on(port).unwrap());
        drop(socket);
        assert!(!listening.on(port).unwrap());
    }

    #[test]
    fn a_connection_does_not_listen() {
        assert_eq!(listening_port("0: 0100007F:1F90 00000000:0000 0A 00000000"), Some(8080));
        assert_eq!(listening_port("0: 0100007F:1F90 0100007F:0050 01 00000000"), None);
        assert_eq!(listening_port("  sl  local_address rem_address   st"), None);
    }
}
