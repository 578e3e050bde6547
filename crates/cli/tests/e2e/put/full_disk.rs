//! A server with a small disk.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Put, content, longhaul, old_kernel, put, skip};

/// A server on a separate file system in a private mount namespace.
struct SmallDiskServer {
    server: Child,
    dir: TempDir,
    url: String,
}

impl SmallDiskServer {
    /// Starts the server on a tmpfs of 8 MiB, through the wrapper `through` if set.
    fn start(through: &str) -> Option<Self> {
        Self::on("mount -t tmpfs -o size=8m small files", through)
    }

    /// Starts the server on the file system that `mount` mounts at `files`.
    fn on(mount: &str, through: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can mount a small file system");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("files")).unwrap();
        fs::write(dir.path().join("token"), "sesame").unwrap();
        fs::set_permissions(dir.path().join("token"), fs::Permissions::from_mode(0o600)).unwrap();
        let longhaul = env!("CARGO_BIN_EXE_longhaul");
        let script = format!(
            "{mount} && exec {through} {longhaul} serve files --writable --token token --listen 127.0.0.1:0"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]).current_dir(dir.path()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut log = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
        let Some(line) = log.find(|line| line.starts_with("serving ")) else {
            server.wait().unwrap();
            skip(&format!("this machine cannot: {mount}"));
            return None;
        };
        std::thread::spawn(move || log.for_each(drop));
        let url = format!("http://{}/f", line.split("://").nth(1).unwrap().split('/').next().unwrap());
        Some(Self { server, dir, url })
    }

    fn put(&self, bytes: &[u8]) -> Put {
        let run = put().args([Path::new("--token"), &self.dir.path().join("token")]).args(["f", &self.url]);
        fs::write(run.path("f"), bytes).unwrap();
        run
    }

    /// Returns the path of `name` outside the namespace.
    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.server.id().to_string()).join("cwd/files").join(name)
    }
}

impl Drop for SmallDiskServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn full_disk_is_reported_before_the_first_byte() {
    let Some(small) = SmallDiskServer::start("") else { return };
    small
        .put(&content(16 << 20, 1))
        .run()
        .fails(74, &["507", "not enough space on the server's disk; make room"]);
    longhaul("get").args([&small.url]).run().fails(66, &["404"]);
    small.put(&content(4 << 20, 2)).run().ok();
}

#[test]
fn put_fails_on_a_filled_disk_and_resumes_with_free_space() {
    let Some(old_kernel) = old_kernel() else { return };
    // Space cannot be reserved there, so other programs can take it.
    let Some(small) = SmallDiskServer::start(&format!("{old_kernel} --without fallocate")) else { return };
    let bytes = content(6 << 20, 3);
    let run = small.put(&bytes).args(["--limit", "2MB/s"]);
    let mut running = run.start();
    let part = small.path("f.longhaul-part");
    running.until("some is written", || part.metadata().is_ok_and(|part| part.blocks() > 0));
    // Fills the disk; the write ends with an error.
    let _ = fs::write(small.path("others"), content(8 << 20, 4));
    running.end().fails(74, &["507", "not enough space on the server's disk; make room"]);
    assert!(!small.path("f").exists());
    fs::remove_file(small.path("others")).unwrap();
    run.run().ok();
    assert!(fs::read(small.path("f")).unwrap() == bytes);
}

#[test]
fn read_only_file_system_is_named() {
    let Some(small) = SmallDiskServer::on("mount -t tmpfs -o ro small files", "") else { return };
    small.put(b"bytes").run().fails(77, &["403", "the server's file system is read-only"]);
}

#[test]
fn failing_file_system_is_named() {
    let mount =
        "command -v perl >&2 && truncate -s 64M image && mkfs.ext4 -q image && mount -o loop image files";
    let Some(small) = SmallDiskServer::on(mount, "") else { return };
    small.put(b"bytes").run().ok();
    // ext4's reaction to a failed disk (EXT4_IOC_SHUTDOWN).
    let script =
        "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); ioctl($f, 0x8004587d, $how) or die $!";
    let shut = Command::new("perl").args(["-e", script]).arg(small.path("f")).status().unwrap();
    assert!(shut.success(), "{shut}");
    let failed = small.put(b"other").args(["--retries", "0"]).run();
    failed.fails(69, &["500", "the server's file system fails: Input/output error"]);
}
