//! A low limit of open files: uploads and connections share it, and none of them is lost for lack
//! of a descriptor.

use std::fs::{create_dir, read_dir, write};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::serve::uploads::{Place, UPLOAD};
use crate::serve::{Serve, get};
use crate::support::skip;

/// More than uploads that fit into the limit.
const FILE_SYSTEMS: usize = 24;
const UPLOADS_OF_EACH: usize = 2;
const LIMIT: usize = 500;

/// A file system of its own.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts at `point`; `None`, with a word why, where that is not permitted.
    fn new(point: &Path) -> Option<Self> {
        create_dir(point).unwrap();
        match mount("test", point, "tmpfs", MountFlags::empty(), c"size=64m") {
            Ok(()) => Some(Self(point.to_owned())),
            Err(error) => {
                skip(&format!("cannot mount tmpfs: {error}"));
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Returns the command with a limit of open files.
pub(crate) fn with_open_files(limit: usize, program: &Command) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", &format!("ulimit -n {limit}; exec \"$@\""), "bash"]).arg(program.get_program());
    command.args(program.get_args());
    command
}

/// Begins an upload of a megabyte; returns what the server answers to its head.
fn begin(server: &Serve, path: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "PATCH {path}{UPLOAD} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer s3cret\r\nExpect: 100-continue\r\n\
         Content-Type: application/partial-upload\r\nUpload-Offset: 0\r\nUpload-Length: 1000000\r\n\
         Upload-Complete: ?1\r\nWant-Repr-Digest: blake3=10\r\nContent-Length: 1000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 200];
    let length = stream.read(&mut answer).unwrap_or_else(|error| panic!("{path}: {error}"));
    (stream, String::from_utf8_lossy(&answer[..length]).into_owned())
}

#[test]
fn uploads_to_many_file_systems_leave_descriptors_to_connections() {
    let place = Place::new();
    write(place.dir.path().join("f"), "content").unwrap();
    let mount = |number: usize| Tmpfs::new(&place.dir.path().join(number.to_string()));
    let Some(_mounts) = (0..FILE_SYSTEMS).map(mount).collect::<Option<Vec<_>>>() else { return };
    let server = Serve::start(with_open_files(LIMIT, &place.command(&[])));
    let paths =
        (0..UPLOADS_OF_EACH).flat_map(|file| (0..FILE_SYSTEMS).map(move |fs| format!("/{fs}/{file}")));
    let mut begun = Vec::new();
    for path in paths {
        let (mut stream, answer) = begin(&server, &path);
        if answer.starts_with("HTTP/1.1 100 ") {
            // What an upload opens it opens with its first bytes at the latest.
            stream.write_all(&[7; 100_000]).unwrap();
            begun.push(stream);
        } else {
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 5\r\n"), "{answer}");
        }
    }
    assert!((6..FILE_SYSTEMS).contains(&begun.len()), "{} uploads were begun", begun.len());
    // As many more connections as the server allows, which hold a descriptor each.
    let idle: Vec<_> = (0..LIMIT).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    // Accepted after them.
    assert!(get(server.address, "/f").ends_with("content"));
    let open = read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert!(open < LIMIT, "{open} descriptors are open");
    drop(idle);
    for stream in &mut begun {
        stream.write_all(&[7; 900_000]).unwrap();
        // Where the disk is slow, 102 (Processing) precedes the answer.
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        let status = lines.find(|line| line.starts_with("HTTP/1.1 ") && !line.contains(" 102 ")).unwrap();
        assert_eq!(status, "HTTP/1.1 201 Created");
    }
    drop(begun);
    let log = server.stop();
    assert!(!log.contains("no connection can be accepted") && !log.contains("out of resources"), "{log}");
}
