//! Reads input files that the user names: lists of URLs, logins, cookies, checksums, certificates.
//!
//! An input file may be a pipe without a writer or an endless device: every read ends with the
//! command and has a size limit.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::cancel::Cancel;

/// The interval at which a read checks for cancellation while no data arrives.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// The timeout for the first writer of a pipe: a shell starts one within milliseconds.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);
/// The UTF-8 byte order mark, which some editors write at the start of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a file to its end, a pipe until its writers close it (as for `<(command)` in a shell);
/// removes a byte order mark.
///
/// # Errors
/// The kernel's error; `InvalidInput` for more than `longest`, `TimedOut` for a pipe without a
/// writer, `Interrupted` if the command is cancelled.
pub fn read(path: &Path, longest: Bytes, cancel: &Cancel) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    collect(file.as_fd(), longest, cancel, true)
}

/// Reads stdin to its end, as [`read`] does.
///
/// # Errors
/// See [`read`].
pub fn read_stdin(longest: Bytes, cancel: &Cancel) -> io::Result<Vec<u8>> {
    collect(io::stdin().as_fd(), longest, cancel, false)
}

/// Reads a file that is read more than once and therefore must not be a pipe; does not block.
///
/// # Errors
/// See [`read`]; also `InvalidInput` for a pipe.
pub fn read_again(path: &Path, longest: Bytes) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        return Err(invalid("it is a pipe, and would have to be read more than once".to_owned()));
    }
    let mut text = Vec::new();
    file.take(longest.get() + 1).read_to_end(&mut text)?;
    checked(text, longest)
}

/// Returns whether `path` is a pipe, which can be read only once.
pub fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Opens a file without blocking on the other end of a pipe.
///
/// # Errors
/// The kernel's error.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    File::options().read(true).custom_flags(flags).open(path)
}

/// Reads to the end. A non-blocking file is also read when it is not ready: the result shows
/// whether a pipe has a writer.
fn collect(
    file: BorrowedFd<'_>,
    longest: Bytes,
    cancel: &Cancel,
    is_nonblocking: bool,
) -> io::Result<Vec<u8>> {
    let (mut text, mut chunk) = (Vec::new(), vec![0; 64 << 10]);
    let mut without_writer: Option<Instant> = None;
    loop {
        if cancel.is_cancelled() {
            let why = "the command ended before all of it was read";
            return Err(io::Error::new(io::ErrorKind::Interrupted, why));
        }
        let is_ready = is_ready(file)?;
        if !is_ready && !is_nonblocking {
            continue;
        }
        match rustix::io::read(file, &mut chunk) {
            Ok(0) if is_ready => return checked(text, longest),
            Ok(0) if without_writer.get_or_insert_with(Instant::now).elapsed() < WRITER_TIMEOUT => {}
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "it is a pipe that no program writes to",
                ));
            }
            Ok(length) => text.extend_from_slice(&chunk[..length]),
            Err(Errno::AGAIN) => without_writer = None,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if text.len() as u64 > longest.get() {
            return checked(text, longest);
        }
    }
}

/// Waits up to one `TICK` for data; a file that is no pipe, socket or terminal is always ready.
fn is_ready(file: BorrowedFd<'_>) -> io::Result<bool> {
    match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&TICK)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn checked(mut text: Vec<u8>, longest: Bytes) -> io::Result<Vec<u8>> {
    if text.len() as u64 > longest.get() {
        return Err(invalid(format!("it is larger than {longest}")));
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::path::PathBuf;
    use std::thread;

    use super::*;

    const LONGEST: Bytes = Bytes::kib(64);

    fn pipe() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        (dir, path)
    }

    #[test]
    fn slow_writer_is_read_to_its_end() {
        let (_dir, path) = pipe();
        let to = path.clone();
        let writer = thread::spawn(move || {
            let mut pipe = File::options().write(true).open(to).unwrap();
            for part in ["\u{feff}one\n", "two\n"] {
                pipe.write_all(part.as_bytes()).unwrap();
                while rustix::io::ioctl_fionread(&pipe).unwrap() > 0 {
                    thread::yield_now();
                }
            }
        });
        assert_eq!(read(&path, LONGEST, &Cancel::new()).unwrap(), b"one\ntwo\n");
        writer.join().unwrap();
    }

    #[test]
    fn pipe_without_data_ends_by_cancellation_or_without_a_writer_by_timeout() {
        let (_dir, path) = pipe();
        assert_eq!(read(&path, LONGEST, &Cancel::new()).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(read_again(&path, LONGEST).unwrap_err().kind(), ErrorKind::InvalidInput);
        let soon = || Cancel::new().child_until(Instant::now() + Duration::from_millis(100));
        assert_eq!(read(&path, LONGEST, &soon()).unwrap_err().kind(), ErrorKind::Interrupted, "no writer");
        let _writer = File::options().read(true).write(true).open(&path).unwrap();
        let silent = read(&path, LONGEST, &soon()).unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::Interrupted, "a silent writer");
    }

    #[test]
    fn endless_devices_and_long_files_are_rejected() {
        for read in [|path| read(path, LONGEST, &Cancel::new()), |path| read_again(path, LONGEST)] {
            assert_eq!(read(Path::new("/dev/null")).unwrap(), b"");
            let error = read(Path::new("/dev/zero")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("64 KiB"), "{error}");
        }
    }
}
