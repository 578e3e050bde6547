//! Kernel settings under /proc/sys/net.

use std::fs::{self, File};
use std::io::{self, Write};

/// Where settings are.
const ROOT: &str = "/proc/sys";

/// Reads a setting; its values are separated by one space.
pub(super) fn read(name: &str) -> io::Result<String> {
    Ok(plain(&fs::read_to_string(path(name)?)?))
}

/// Says whether a setting can be written, without writing it.
pub(super) fn check_writable(name: &str) -> io::Result<()> {
    File::options().write(true).open(path(name)?).map(drop)
}

/// Writes a setting; the kernel takes some values in part.
pub(super) fn write(name: &str, value: &str) -> io::Result<()> {
    File::options().write(true).open(path(name)?)?.write_all(value.as_bytes())
}

/// Returns whether two values of a setting mean the same: the kernel lists congestion controls in
/// an order of its own.
pub(super) fn is_same(name: &str, one: &str, other: &str) -> bool {
    let sorted = |value: &str| {
        let mut words: Vec<String> = value.split_whitespace().map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    plain(one) == plain(other)
        || (name == "net.ipv4.tcp_allowed_congestion_control" && sorted(one) == sorted(other))
}

/// Returns the file of a setting. Names come from a file of the user's, too: only those of the
/// network are taken.
fn path(name: &str) -> io::Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if name.starts_with("net.") && name.chars().all(is_plain) {
        Ok(format!("{ROOT}/{}", name.replace('.', "/")))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no setting of the network"))
    }
}

/// Separates values by one space, as people write them; the kernel uses tabs.
fn plain(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_network_are_read_and_no_other_file() {
        let limits = read("net.ipv4.tcp_rmem").unwrap();
        assert_eq!(limits.split(' ').count(), 3, "{limits}");
        for name in ["kernel.hostname", "net.ipv4/../../kernel/hostname", "net.", "/etc/passwd", ""] {
            assert!(read(name).is_err() && write(name, "1").is_err(), "{name}");
        }
        let allowed = |one, other| is_same("net.ipv4.tcp_allowed_congestion_control", one, other);
        assert!(allowed("reno cubic", "cubic reno") && !allowed("reno cubic", "reno"));
        assert!(!is_same("net.ipv4.tcp_rmem", "1 2 3", "3 2 1"));
        assert_eq!(read("net.ipv4.tcp_none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
