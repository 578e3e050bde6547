//! A file system that never answers holds up neither other files nor the end of the server.

use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;

use crate::{Serve, get, serve};

/// A FUSE file system whose daemon answers nothing.
struct HungMount {
    point: PathBuf,
    _device: File,
}

impl HungMount {
    /// Mounts at `point`; `None`, with a word why, where that is not permitted.
    fn new(point: &Path) -> Option<Self> {
        let mounted = File::options().read(true).write(true).open("/dev/fuse").and_then(|device| {
            let data = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
            let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).unwrap();
            mount("hung", point, "fuse", MountFlags::empty(), data)?;
            Ok(device)
        });
        match mounted {
            Ok(device) => Some(Self { point: point.to_owned(), _device: device }),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "FUSE is needed: {error}");
                println!("skipped: cannot mount FUSE: {error}");
                None
            }
        }
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        unmount(&self.point, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn hung_file_system_holds_up_neither_other_files_nor_the_end() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "content").unwrap();
    let point = dir.path().join("hung");
    std::fs::create_dir(&point).unwrap();
    std::fs::create_dir(dir.path().join("links")).unwrap();
    std::os::unix::fs::symlink("../hung/f", dir.path().join("links/link")).unwrap();
    let Some(_mount) = HungMount::new(&point) else { return };
    let server = Serve::start(serve(dir.path(), &[]));
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        stream
    };
    let waiting: Vec<TcpStream> =
        (0..600).map(|number| ask(if number % 2 == 0 { "/hung/f" } else { "/links/link" })).collect();
    std::thread::sleep(Duration::from_millis(300));
    let started = Instant::now();
    assert!(get(server.address, "/f").ends_with("content"));
    assert!(get(server.address, "/").contains("hung"), "a listing does not wait for the mount point");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    server.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(200));
    let started = Instant::now();
    server.signal(Signal::INT);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    drop(waiting);
}
