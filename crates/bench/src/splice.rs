//! Receives by splice(2) from the socket through a pipe to the file: a rejected method, whose cost
//! is measured again beside longhaul's.
//!
//! Sends one GET to a server that answers 200 with a Content-Length, and reserves space and calls
//! fsync like longhaul.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::write_back;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes per write-back request: longhaul's segment size.
const PIECE: u64 = 4 << 20;
/// Largest pipe without privilege (fs.pipe-max-size).
const PIPE: usize = 1 << 20;

/// A received range to be written back: offset and length.
type Arrived = Sender<ByteRange>;

/// Fetches `path` from `server` into `target`.
///
/// # Errors
/// Fails on a status other than 200, a missing length, an early close, or a disk error.
pub(crate) fn fetch(server: SocketAddr, path: &str, target: &Path) -> Result<()> {
    let mut socket = TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    let size = ask(&mut socket, path).with_context(|| format!("cannot fetch {path} from {server}"))?;
    let writing = || format!("cannot write {}", target.display());
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(target)
        .with_context(writing)?;
    fallocate(&file, FallocateFlags::empty(), 0, size.get()).with_context(writing)?;
    let (arrived, ranges) = mpsc::channel::<ByteRange>();
    thread::scope(|scope| {
        let file = &file;
        // A separate thread: write-back may block on the device, and the socket must not wait.
        let writer =
            scope.spawn(move || ranges.into_iter().try_for_each(|range| write_back::start(file, range)));
        let received = receive(&socket, file, size, &arrived);
        drop(arrived);
        received?;
        writer.join().map_err(|_| anyhow!("the writing thread panicked"))?.with_context(writing)
    })?;
    file.sync_all().with_context(writing)
}

/// Sends the request and reads exactly the response head; returns the body's length.
fn ask(socket: &mut TcpStream, path: &str) -> Result<Bytes> {
    write!(socket, "GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).context("the answer has no complete head")?;
        head.extend(byte);
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut headers);
    answer.parse(&head)?;
    if answer.code != Some(200) {
        bail!("the server answers {}, not 200", answer.code.unwrap_or_default());
    }
    let length = answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.context("the answer has no Content-Length")?;
    Ok(Bytes::new(std::str::from_utf8(length.value)?.trim().parse()?))
}

fn receive(socket: &TcpStream, file: &File, size: Bytes, arrived: &Arrived) -> Result<()> {
    let (out, into) = pipe_with(PipeFlags::CLOEXEC).context("cannot make a pipe")?;
    fcntl_setpipe_size(&into, PIPE).context("cannot enlarge a pipe")?;
    let (mut start, mut at) = (0, 0);
    while at < size.get() {
        let most = PIPE.min(Bytes::new(size.get() - at).as_usize());
        let mut held = splice(socket, None, &into, None, most, SpliceFlags::MOVE)
            .context("cannot splice from the socket")?;
        if held == 0 {
            bail!("the server closed after {at} of {} bytes", size.get());
        }
        while held > 0 {
            // The kernel advances `at`.
            held -= splice(&out, None, file, Some(&mut at), held, SpliceFlags::MOVE)
                .context("cannot splice to the file")?;
        }
        if at - start >= PIECE || at == size.get() {
            arrived.send(ByteRange::new(start, at)).context("the writing thread has ended")?;
            start = at;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Serves one request with `head` and `body`; returns the client's result.
    fn served(head: &str, body: &[u8], target: &Path) -> Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut socket = listener.accept().unwrap().0;
                let mut request = [0; 1000];
                let _ = socket.read(&mut request).unwrap();
                // The client may already have closed.
                let _ = socket.write_all(&[head.as_bytes(), body].concat());
                // Closing with unread data would reset the connection and discard data in flight.
                let _ = socket.shutdown(std::net::Shutdown::Write);
                let _ = std::io::copy(&mut socket, &mut std::io::sink());
            });
            fetch(server, "/file", target)
        })
    }

    #[test]
    fn file_is_fetched_and_other_responses_are_errors() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let target = dir.path().join("file");
        let body: Vec<u8> = (0..9_000_001_u32).map(|i| (i * 31 % 251) as u8).collect();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        served(&head, &body, &target).unwrap();
        assert!(std::fs::read(&target).unwrap() == body);
        for head in [
            "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n",
            "220 hello",
        ] {
            assert!(served(head, b"four", &target).is_err(), "{head}");
        }
    }
}
