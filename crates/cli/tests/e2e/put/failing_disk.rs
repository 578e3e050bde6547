//! A source on a failing disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{Writable, content, put, skip};

/// A file system in a private mount namespace, with an uncached file `f`.
struct FailingDisk {
    holder: Child,
    _dir: TempDir,
}

impl FailingDisk {
    fn with(bytes: &[u8]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can mount a file system");
            return None;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(dir.path().join("f"), bytes).unwrap();
        let script = "command -v perl >&2 && mkdir files && truncate -s 64M image && mkfs.ext4 -q image && mount -o loop image files && \
             cp f files && sync -f files && dd if=files/f iflag=nocache count=0 status=none && echo ready && \
             exec sleep 600";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).current_dir(dir.path()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let disk = Self { holder, _dir: dir };
        if line != "ready\n" {
            skip("this machine mounts no image of a disk, or has no perl");
            return None;
        }
        Some(disk)
    }

    /// Returns the path of `name` outside the namespace.
    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.holder.id().to_string()).join("cwd/files").join(name)
    }

    /// Makes all reads fail: ext4's reaction to a failed disk (EXT4_IOC_SHUTDOWN).
    fn fail(&self) {
        let script = "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); ioctl($f, 0x8004587d, $how) or die $!";
        let shut = Command::new("perl").args(["-e", script]).arg(self.path("f")).status().unwrap();
        assert!(shut.success(), "{shut}");
    }
}

impl Drop for FailingDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn read_error_of_the_source_fails_the_put_without_a_file() {
    for reader in ["sendfile", "direct"] {
        let Some(disk) = FailingDisk::with(&content(32 << 20, 1)) else { return };
        let server = Writable::start();
        let run = put().args(["--limit", "16MB/s", "--reader", reader, "--token"]);
        let run = run.args([&server.token(), &disk.path("f"), Path::new(&server.url("/f"))]);
        let mut running = run.start();
        let began = Instant::now();
        let part = server.path("f.longhaul-part");
        running.until("some is written", || part.metadata().is_ok_and(|part| part.blocks() > 0));
        disk.fail();
        let ended = running.end();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        ended.fails(74, &["cannot read", "files/f", "Input/output error"]);
        assert!(!server.path("f").exists(), "{reader}: {:?}", server.names());
    }
}
