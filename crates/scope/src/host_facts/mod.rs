//! Reads the facts that [`longhaul_core::host_check`] judges: kernel files, outgoing device, disk.
//!
//! Needs no privilege and changes nothing. A failed reading holds its path or call and the system's
//! reason; the others are unaffected.

mod cgroup;
mod device;
mod disk;
mod kernel_tree;
mod processors;
mod resources;
mod tcp;
mod write_test;

use std::net::IpAddr;
use std::path::Path;

use longhaul_core::host_check::{HostFacts, KernelVersion, Reading};

use kernel_tree::KernelTree;

/// Reads all facts except the disk's speed; takes milliseconds.
///
/// The device is that of the route to `host`, or of the default route. `disk` is a directory.
pub fn read(host: Option<IpAddr>, disk: &Path) -> HostFacts {
    let tree = KernelTree::of_this_host();
    HostFacts {
        kernel: kernel(),
        buffers: tcp::buffers(&tree),
        tcp: tcp::options(&tree),
        congestion: tcp::congestion(&tree),
        device: device::outgoing(&tree, host),
        disk: disk::facts(disk),
        resources: resources::facts(&tree),
    }
}

pub use write_test::measure as measure_disk;

fn kernel() -> Reading<KernelVersion> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    parse_release(&release).ok_or_else(|| format!("uname: '{release}' is no version"))
}

/// Parses "6.1.0-18-amd64".
fn parse_release(release: &str) -> Option<KernelVersion> {
    let (major, rest) = release.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some(KernelVersion(major.parse().ok()?, rest[..end].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_of_a_kernel() {
        assert_eq!(parse_release("6.1.0-18-amd64"), Some(KernelVersion(6, 1)));
        assert_eq!(parse_release("7.0"), Some(KernelVersion(7, 0)));
        assert_eq!([parse_release("6"), parse_release("six.one"), parse_release("")], [None; 3]);
        assert!(kernel().is_ok());
    }
}
