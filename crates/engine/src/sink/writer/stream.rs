//! Writes to a pipe, a terminal or an append-only file, in the order of the bytes.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fstat};
use rustix::pipe::fcntl_setpipe_size;

use super::Writer;
use crate::cancel::Cancel;

/// Writes with write(2) whenever the stream is writable.
#[derive(Debug)]
pub(crate) struct StreamWriter {
    file: File,
    /// The maximum bytes of one write.
    piece: usize,
    /// The number of bytes written, which is the offset of the next byte.
    written: Mutex<u64>,
    stop: Cancel,
}

/// A write of at most this size does not block once poll(2) reports the stream writable (POSIX,
/// PIPE_BUF).
const PIECE: usize = 4096;
/// The requested size of a pipe: the maximum without privilege (pipe(7), pipe-max-size).
const PIPE: usize = 1 << 20;
/// The interval at which a blocked stream is checked for the end of the transfer.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

impl StreamWriter {
    /// Wraps a stream at its current position; `stop` ends a write that waits for the reader.
    pub(crate) fn new(file: &File, stop: Cancel) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(file)?.st_mode);
        let (file, piece) = match kind {
            FileType::RegularFile => (file.try_clone()?, usize::MAX),
            FileType::Fifo => match unblocked(file) {
                Ok(pipe) => {
                    // A smaller pipe only causes more writes.
                    let _ = fcntl_setpipe_size(&pipe, PIPE);
                    (pipe, usize::MAX)
                }
                Err(_) => (file.try_clone()?, PIECE),
            },
            _ => (file.try_clone()?, PIECE),
        };
        Ok(Self { file, piece, written: Mutex::new(0), stop })
    }

    /// Waits until the stream is writable, or its reader has closed, which the write reports.
    fn wait(&self) -> io::Result<()> {
        loop {
            if self.stop.is_cancelled() {
                return Err(io::Error::new(ErrorKind::Interrupted, "the transfer has ended"));
            }
            let ready = poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&TICK));
            if matches!(ready, Ok(1..)) {
                return Ok(());
            }
        }
    }
}

/// Opens a pipe again in non-blocking mode. The flags of `file` itself are shared with other
/// processes.
fn unblocked(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    File::options().write(true).custom_flags(flags).open(path)
}

impl Writer for StreamWriter {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written.lock();
        if offset != *written {
            let message = format!("byte {offset} came while byte {written} was due; please report it");
            return Err(io::Error::new(ErrorKind::InvalidInput, message));
        }
        let mut left = data;
        while !left.is_empty() {
            self.wait()?;
            match (&self.file).write(&left[..left.len().min(self.piece)]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(taken) => left = &left[taken..],
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        *written += data.len() as u64;
        Ok(())
    }

    fn threads(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn bytes_are_written_in_order_only() {
        let (mut reader, writer) =
            rustix::pipe::pipe().map(|(reader, writer)| (File::from(reader), File::from(writer))).unwrap();
        let stream = StreamWriter::new(&writer, Cancel::new()).unwrap();
        drop(writer);
        let content: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let read = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        stream.write(0, &content[..200_000]).unwrap();
        assert_eq!(stream.write(250_000, &content[250_000..]).unwrap_err().kind(), ErrorKind::InvalidInput);
        stream.write(200_000, &content[200_000..]).unwrap();
        drop(stream);
        assert!(read.join().unwrap().unwrap() == content);
    }
}
