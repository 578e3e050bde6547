//! The mount points of the served tree, by the kernel's table: which file system holds a path is
//! found without touching a file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Types of file systems whose cached names and pages are found without asking a server or a
/// daemon.
const LOCAL: [&str; 8] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "ramfs"];

/// The mount points below a directory, and those that hold it.
pub(crate) struct MountTable {
    root: PathBuf,
    table: Option<File>,
    /// In the order of the table: a later mount covers an earlier one.
    mounts: Vec<Mount>,
}

/// A line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    point: PathBuf,
    /// The device's number and the file system's type.
    pub(crate) device: String,
    /// What its kernel code has in memory is found without waiting: it asks no server and no
    /// daemon.
    pub(crate) is_local: bool,
}

impl MountTable {
    /// Opens the table.
    pub(crate) fn new(root: &Path) -> Self {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let table = File::open("/proc/self/mountinfo");
        let table = table.inspect_err(|error| tracing::warn!(%error, "the mount table cannot be read: all files count as one file system"));
        Self { root, table: table.ok(), mounts: Vec::new() }
    }

    /// Returns the mount of the path `names` below the root, where no symbolic link is followed.
    pub(crate) fn of(&mut self, names: &[Vec<u8>]) -> Option<&Mount> {
        self.refresh();
        let mounts = self.mounts.iter().filter(|mount| is_beneath(&self.root, names, &mount.point));
        // Of two at one place the later one, which covers the other.
        mounts.max_by_key(|mount| mount.point.as_os_str().len())
    }

    /// Reads the table where it has changed, which poll(2) reports.
    fn refresh(&mut self) {
        let Some(table) = &mut self.table else { return };
        let mut changed = [PollFd::new(&*table, PollFlags::PRI)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !self.mounts.is_empty() && matches!(poll(&mut changed, Some(&now)), Ok(0)) {
            return;
        }
        let mut text = Vec::new();
        if table.rewind().and_then(|()| table.read_to_end(&mut text)).is_ok() {
            let mounts = text.split(|&byte| byte == b'\n').filter_map(parse_mount);
            let concerns =
                |mount: &Mount| mount.point.starts_with(&self.root) || self.root.starts_with(&mount.point);
            self.mounts = mounts.filter(concerns).collect();
        }
    }
}

/// Returns whether the path `names` below `root` is at `point` or beneath it.
fn is_beneath(root: &Path, names: &[Vec<u8>], point: &Path) -> bool {
    match point.strip_prefix(root) {
        Ok(below) => {
            let below: Vec<&OsStr> = below.iter().collect();
            below.len() <= names.len()
                && below.iter().zip(names).all(|(name, other)| name.as_bytes() == other)
        }
        Err(_) => root.starts_with(point),
    }
}

/// Parses a line of /proc/self/mountinfo (proc(5)).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ').skip(2);
    let number = fields.next()?;
    let point = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    let device = String::from_utf8([number, b" ", kind].concat()).ok()?;
    let is_local = LOCAL.iter().any(|local| local.as_bytes() == kind);
    Some(Mount { point, device, is_local })
}

/// Replaces `\040` and the like by the bytes that they stand for.
fn unescape(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let code = octal.and_then(|octal| u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped_and_hold_the_paths_below_them() {
        let line = b"36 35 98:0 /mnt1 /mnt/two\\040words rw,noatime master:1 - ext3 /dev/root rw";
        let mount = |kind: &str, is_local| Mount {
            point: PathBuf::from("/mnt/two words"),
            device: format!("98:0 {kind}"),
            is_local,
        };
        assert_eq!(parse_mount(line), Some(mount("ext3", true)));
        let line = b"36 35 98:0 /mnt1 /mnt/two\\040words rw - fuse.sshfs host: rw";
        assert_eq!(parse_mount(line), Some(mount("fuse.sshfs", false)));
        assert_eq!(parse_mount(b""), None);
        assert_eq!(unescape(b"a\\9\\"), b"a\\9\\");
        let names = |path: &str| path.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        for (path, point, holds) in [
            ("a/b", "/srv/www/a", true),
            ("a/b", "/srv/www/a/b", true),
            ("ab", "/srv/www/a", false),
            ("a", "/srv/www/a/b", false),
            ("a", "/srv", true),
            ("a", "/", true),
            ("a", "/srv/w", false),
        ] {
            let found = is_beneath(Path::new("/srv/www"), &names(path), Path::new(point));
            assert_eq!(found, holds, "{path} {point}");
        }
    }
}
