//! Disks that are full, read-only or failing, of the server and of the source.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::{Put, Writable, content, needs_root, old_kernel, put, skip, write_secret};

/// Mounts a file system on an image at `files`.
const MOUNT_IMAGE: &str =
    "command -v perl >&2 && truncate -s 64M image && mkfs.ext4 -q image && mount -o loop image files";

/// A process in a private mount namespace with a file system of its own at `files`; killed on drop.
struct Namespace {
    process: Child,
    dir: TempDir,
}

impl Namespace {
    /// Runs `script` in the namespace; returns the line of its output that begins with `mark`.
    fn run(dir: TempDir, script: &str, mark: &str) -> Option<(Self, String)> {
        needs_root("mounting a file system")?;
        fs::create_dir(dir.path().join("files")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).current_dir(dir.path()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let namespace = Self { process, dir };
        let Some(line) = log.find(|line| line.starts_with(mark)) else {
            skip(&format!("this machine cannot: {script}"));
            return None;
        };
        std::thread::spawn(move || log.for_each(drop));
        Some((namespace, line))
    }

    /// Returns the path of `name` outside the namespace.
    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.process.id().to_string()).join("cwd/files").join(name)
    }

    /// Makes all access to the image fail: ext4's reaction to a failed disk (EXT4_IOC_SHUTDOWN).
    fn fail(&self) {
        let script = "open(my $f, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); ioctl($f, 0x8004587d, $how) or die $!";
        let shut = Command::new("perl").args(["-e", script]).arg(self.path("f")).status().unwrap();
        assert!(shut.success(), "{shut}");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server on a file system of its own.
struct SmallDiskServer {
    namespace: Namespace,
    url: String,
}

impl SmallDiskServer {
    /// Starts the server on the file system that `mount` mounts at `files`, through the wrapper
    /// `through` if set.
    fn start(mount: &str, through: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        write_secret(dir.path().join("token"), "sesame");
        let longhaul = env!("CARGO_BIN_EXE_longhaul");
        let script = format!(
            "{mount} && exec {through} {longhaul} serve files --writable --token token --listen 127.0.0.1:0"
        );
        let (namespace, line) = Namespace::run(dir, &script, "serving ")?;
        let url = format!("http://{}/f", line.split("://").nth(1).unwrap().split('/').next().unwrap());
        Some(Self { namespace, url })
    }

    fn put(&self, bytes: &[u8]) -> Put {
        let token = self.namespace.dir.path().join("token");
        put().args([Path::new("--token"), &token]).args(["f", &self.url]).file("f", bytes)
    }
}

#[test]
fn put_fails_on_a_filled_disk_and_resumes_with_free_space() {
    let Some(old_kernel) = old_kernel() else { return };
    // Space cannot be reserved there, so other programs can take it.
    let tmpfs = "mount -t tmpfs -o size=8m small files";
    let Some(small) = SmallDiskServer::start(tmpfs, &format!("{old_kernel} --without fallocate")) else {
        return;
    };
    let bytes = content(6 << 20, 3);
    let run = small.put(&bytes).args(["--limit", "2MB/s"]);
    let mut running = run.start();
    let [part, others, file] = ["f.longhaul-part", "others", "f"].map(|name| small.namespace.path(name));
    running.until("some is written", || part.metadata().is_ok_and(|part| part.blocks() > 0));
    // Fills the disk; the write ends with an error.
    let _ = fs::write(&others, content(8 << 20, 4));
    running.end().fails(74, &["507", "not enough space on the server's disk; make room"]);
    assert!(!file.exists());
    fs::remove_file(others).unwrap();
    let token = small.namespace.dir.path().join("token");
    run.again([Path::new("--token"), &token]).args(["f", &small.url]).run().ok();
    assert!(fs::read(file).unwrap() == bytes);
}

#[test]
fn read_only_and_failing_file_systems_are_named() {
    let Some(small) = SmallDiskServer::start("mount -t tmpfs -o ro small files", "") else { return };
    small.put(b"bytes").run().fails(77, &["403", "the server's file system is read-only"]);
    let Some(small) = SmallDiskServer::start(MOUNT_IMAGE, "") else { return };
    small.put(b"bytes").run().ok();
    small.namespace.fail();
    let failed = small.put(b"other").args(["--retries", "0"]).run();
    failed.fails(69, &["500", "the server's file system fails: Input/output error"]);
}

#[test]
fn read_error_of_the_source_fails_the_put_without_a_file() {
    for reader in ["sendfile", "direct"] {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(dir.path().join("f"), content(32 << 20, 1)).unwrap();
        // The file is not cached.
        let script = format!(
            "{MOUNT_IMAGE} && cp f files && sync -f files && dd if=files/f iflag=nocache count=0 status=none && \
             echo ready >&2 && exec sleep 600"
        );
        let Some((disk, _)) = Namespace::run(dir, &script, "ready") else { return };
        let server = Writable::start();
        let run = put().args(["--limit", "16MB/s", "--reader", reader, "--token"]);
        let run = run.args([&server.token(), &disk.path("f"), Path::new(&server.url("/f"))]);
        let mut running = run.start();
        let part = server.path("f.longhaul-part");
        running.until("some is written", || part.metadata().is_ok_and(|part| part.blocks() > 0));
        disk.fail();
        running.end().fails(74, &["cannot read", "files/f", "Input/output error"]);
        assert!(!server.path("f").exists(), "{reader}: {:?}", server.names());
    }
}
