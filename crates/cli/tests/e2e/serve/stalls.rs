//! A stalled disk during an upload: the application buffer grows, or has its configured size.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::serve::{BIN, Serve, lines, wait_until};
use crate::support::skip;

/// A mounted file system of a server whose writes are frozen.
struct FrozenFileSystem {
    server: String,
    mount: PathBuf,
}

impl FrozenFileSystem {
    fn of(server: &Serve, mount: &Path) -> Self {
        let frozen = Self { server: server.child.id().to_string(), mount: mount.to_owned() };
        assert!(frozen.fsfreeze("-f"));
        frozen
    }

    fn fsfreeze(&self, how: &str) -> bool {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.server, "-m", "fsfreeze", how]).arg(&self.mount);
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for FrozenFileSystem {
    fn drop(&mut self) {
        // Processes with pending writes could never be killed otherwise.
        self.fsfreeze("-u");
    }
}

/// Creates a small file system on `image`; `None` if none can be mounted and frozen.
fn disk(image: &Path) -> Option<()> {
    fs::File::create(image).unwrap().set_len(300 << 20).unwrap();
    let script =
        "mkfs.ext4 -q -F \"$0\" && mount -o loop \"$0\" /mnt && fsfreeze -f /mnt && fsfreeze -u /mnt";
    let tried = Command::new("unshare").args(["-m", "sh", "-c", script]).arg(image).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(());
    }
    skip("no file system can be mounted and frozen here");
    None
}

#[test]
fn disk_stall_grows_the_automatic_buffer() {
    // More than the initial buffer, 64 MiB, and the sockets of both ends, up to 40 MB, hold
    // together.
    const SIZE: usize = 176 << 20;
    const FIXED: std::ops::Range<usize> = 24 << 20..64 << 20;
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let Some(()) = disk(&at("image")) else { return };
    fs::create_dir(at("mnt")).unwrap();
    fs::write(at("token"), "s3cret").unwrap();
    fs::set_permissions(at("token"), fs::Permissions::from_mode(0o600)).unwrap();
    for (buffer, grows) in [("auto", true), ("24MiB", false)] {
        let script = "cd \"$0\" && mount -o loop image mnt && rm -f mnt/f && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(place.path()).args([BIN, "serve", "mnt", "--listen"]);
        command.args(["127.0.0.1:0", "--writable", "--token", "token", "--record", "r.jsonl"]);
        command.args(["--app-buffer", buffer]);
        let server = Serve::start(command);
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = "PUT /f HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer s3cret\r\n";
        write!(stream, "{head}Content-Length: {SIZE}\r\n\r\n").unwrap();
        // The path's rate is known before the disk stalls.
        let piece = vec![7; 1 << 20];
        (0..16).for_each(|_| stream.write_all(&piece).unwrap());
        let inside = PathBuf::from(format!("/proc/{}/root", server.child.id()));
        let part = inside.join(at("mnt/f.longhaul-part").strip_prefix("/").unwrap());
        wait_until("the first two segments are written", || {
            let mut last = [0];
            let part = fs::File::open(&part);
            part.is_ok_and(|part| part.read_exact_at(&mut last, (8 << 20) - 1).is_ok()) && last == [7]
        });
        let (frozen, sent) = (FrozenFileSystem::of(&server, &at("mnt")), AtomicUsize::new(0));
        let left = SIZE - (16 << 20);
        std::thread::scope(|threads| {
            let (mut stream, sent, piece) = (stream.try_clone().unwrap(), &sent, &piece);
            threads.spawn(move || {
                while sent.load(Ordering::Relaxed) < left {
                    stream.write_all(piece).unwrap();
                    sent.fetch_add(piece.len(), Ordering::Relaxed);
                }
            });
            let absorbed = || sent.load(Ordering::Relaxed);
            let expected = if grows { left } else { FIXED.start };
            wait_until("the buffers take what is sent", || absorbed() >= expected);
            if !grows {
                // Nothing tells that no more is taken.
                std::thread::sleep(Duration::from_millis(500));
                assert!(FIXED.contains(&absorbed()), "{buffer}: {}", absorbed());
            }
            drop(frozen);
        });
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        drop(stream);
        assert!(reply.contains("HTTP/1.1 201 "), "{reply}");
        server.stop();
        let counts: Vec<u64> =
            lines(&at("r.jsonl")).iter().filter_map(|line| line["segments"]["count"].as_u64()).collect();
        assert!(counts.is_sorted() && counts[0] == if grows { 16 } else { 6 }, "{buffer}: {counts:?}");
        assert_eq!(counts.last().is_some_and(|last| *last > counts[0]), grows, "{buffer}: {counts:?}");
        fs::remove_file(at("r.jsonl")).unwrap();
    }
}
