//! `/etc/hosts` of the emulated hosts: the machine's file, the machine's own name, and the names
//! `client` and `server`.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::HostSide;

const HOSTS: &str = "/etc/hosts";

/// Mounts a file with both hosts' names over `/etc/hosts` in the calling thread's mount namespace.
///
/// Best effort: the names are missing if the machine has no such file or its temporary directory is
/// full.
pub(super) fn mount(pairs: u16) {
    if let Err(error) = try_mount(pairs) {
        tracing::debug!("the lab's hosts have no names: {HOSTS}: {error}");
    }
}

fn try_mount(pairs: u16) -> io::Result<()> {
    let uname = rustix::system::uname();
    let text = with_names(&fs::read_to_string(HOSTS)?, &uname.nodename().to_string_lossy(), pairs);
    // Removed at the end; the mount keeps its content.
    let mut file = tempfile::NamedTempFile::with_prefix("longhaul-lab-hosts-")?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(rustix::mount::mount_bind(file.path(), Path::new(HOSTS))?)
}

/// Puts the hosts' names first: the first line with a name wins. Pairs of hosts are `client1` and
/// `server1`, `client2` and so on.
///
/// Adds the machine's own name if it is missing: servers such as Globus resolve it, and the
/// namespace has no name service.
fn with_names(machine: &str, own: &str, pairs: u16) -> String {
    let mut text = String::new();
    for (name, side) in [("client", HostSide::Client), ("server", HostSide::Server)] {
        for pair in 0..pairs {
            let first = if pair == 0 { format!("{name} ") } else { String::new() };
            for address in [IpAddr::V4(side.ipv4_of(pair)), IpAddr::V6(side.ipv6_of(pair))] {
                text.push_str(&format!("{address}\t{first}{name}{}\n", pair + 1));
            }
        }
    }
    text += machine;
    let names = |line: &str| {
        line.split('#').next().is_some_and(|line| line.split_whitespace().any(|word| word == own))
    };
    if !text.lines().any(names) {
        text += &format!("\n127.0.1.1\t{own}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_before_those_of_the_machine() {
        let text = with_names("127.0.0.1\tlocalhost\n10.0.0.1\tserver", "here", 2);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "198.18.0.1\tclient client1");
        let servers = ["198.18.0.2\tserver server1", "2001:2::2\tserver server1", "198.18.1.2\tserver2"];
        assert_eq!(lines[4..7], servers);
        let rest = ["2001:2:0:1::2\tserver2", "127.0.0.1\tlocalhost", "10.0.0.1\tserver", "127.0.1.1\there"];
        assert_eq!(lines[7..], rest);
        for own in ["server", "localhost"] {
            assert!(!with_names("127.0.0.1\tlocalhost\n", own, 1).contains("127.0.1.1"), "{own} is there");
        }
    }
}
