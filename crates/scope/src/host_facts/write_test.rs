//! Measures write rate and stalls of a disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::host_check::{Reading, WriteTest};
use longhaul_core::units::Bytes;
use longhaul_sys::direct_io;
use longhaul_sys::memory::AlignedBuf;

/// Block size and concurrency of the direct writer of a transfer (UsadaFox: 4 MiB).
const BLOCK: Bytes = Bytes::mib(4);
const THREADS: usize = 4;
/// One part of this many of the free space may be written.
const FREE_SHARE: u64 = 10;
/// Maximum of bytes written: enough for a fast disk, without wear.
const MAX_WRITTEN: Bytes = Bytes::gib(4);

/// Writes blocks to an unnamed file in `directory` for `time`; with Direct I/O, otherwise through
/// the page cache and fdatasync.
///
/// The file has no name (O_TMPFILE), or is unlinked at once where the file system lacks O_TMPFILE:
/// no file remains, however the process ends. `time` also bounds the wait for a hung disk.
///
/// # Errors
/// The reason why the directory is not writable.
pub fn measure(directory: &Path, time: Duration) -> Reading<WriteTest> {
    let (report, ended) = channel();
    let own = directory.to_owned();
    let within = time + SETUP + MARGIN;
    thread::Builder::new()
        .name("disk-test".to_owned())
        .spawn(move || drop(report.send(measure_here(&own, time, MAX_WRITTEN))))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let hangs =
        |_| Err(format!("no write in {} ended within {:.1} s", directory.display(), within.as_secs_f64()));
    ended.recv_timeout(within).unwrap_or_else(hangs)
}

/// Time for the set-up, a file and a first write; a longer set-up shortens the measurement.
const SETUP: Duration = Duration::from_millis(400);
/// Time for the threads to end.
const MARGIN: Duration = Duration::from_millis(100);

fn measure_here(directory: &Path, time: Duration, most: Bytes) -> Reading<WriteTest> {
    let start = Instant::now();
    let failed = |error: io::Error| format!("cannot write in {}: {error}", directory.display());
    let file = tempfile::tempfile_in(directory).map_err(failed)?;
    let free = rustix::fs::fstatvfs(&file).map_err(|error| failed(error.into()))?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    let most = Bytes::new(free / FREE_SHARE).min(most);
    if most < BLOCK {
        return Err(format!("cannot write in {}: too little space is free", directory.display()));
    }
    let direct = direct_file(&file);
    let is_direct = direct.is_some();
    let disk = TestFile { file: Arc::new(direct.unwrap_or(file)), is_direct, most };
    disk.write_for((time + SETUP).saturating_sub(start.elapsed()).min(time)).map_err(failed)
}

/// Size of the first write: a multiple of every usual alignment.
const TRIAL: Bytes = Bytes::kib(64);

/// Reopens the file with O_DIRECT and checks that a write succeeds; `None` otherwise.
fn direct_file(file: &File) -> Option<File> {
    let direct = direct_io::reopen(file).ok()?;
    let block = AlignedBuf::new(TRIAL.as_usize()).ok()?;
    direct.write_all_at(&block, 0).ok()?;
    Some(direct)
}

/// The file and the bytes to write at most.
struct TestFile {
    file: Arc<File>,
    is_direct: bool,
    most: Bytes,
}

impl TestFile {
    fn write_for(&self, time: Duration) -> io::Result<WriteTest> {
        let next = Arc::default();
        let (report, ended) = channel();
        let start = Instant::now();
        for number in 0..THREADS {
            self.start_writer(number, &next, report.clone())?;
        }
        drop(report);
        self.collect(&ended, start, time)
    }

    /// Starts a thread that writes and reports blocks, the `next` in turns with others, until
    /// reports are no longer received; a hung disk blocks this thread only.
    fn start_writer(
        &self,
        number: usize,
        next: &Arc<AtomicU64>,
        report: Sender<io::Result<Instant>>,
    ) -> io::Result<()> {
        let (file, next, most) = (Arc::clone(&self.file), Arc::clone(next), self.most.get());
        let is_direct = self.is_direct;
        let mut block = AlignedBuf::new(BLOCK.as_usize())?;
        // Zeros would compress.
        fill(&mut block, number as u64);
        let write = move || {
            loop {
                let offset = next.fetch_add(BLOCK.get(), Ordering::Relaxed);
                if offset + BLOCK.get() > most {
                    break;
                }
                let written = file.write_all_at(&block, offset);
                let written = written.and_then(|()| if is_direct { Ok(()) } else { file.sync_data() });
                // The receiver is dropped at the end of the measurement.
                if report.send(written.map(|()| Instant::now())).is_err() {
                    break;
                }
            }
        };
        thread::Builder::new().name("disk-test".to_owned()).spawn(write).map(drop)
    }

    fn collect(
        &self,
        ended: &Receiver<io::Result<Instant>>,
        start: Instant,
        time: Duration,
    ) -> io::Result<WriteTest> {
        let (mut written, mut last, mut stall) = (Bytes::ZERO, start, Duration::ZERO);
        loop {
            let left = time.saturating_sub(start.elapsed());
            match ended.recv_timeout(left) {
                Ok(at) => {
                    let at = at?;
                    stall = stall.max(at.saturating_duration_since(last));
                    last = last.max(at);
                    written += BLOCK;
                }
                Err(RecvTimeoutError::Disconnected) => break,
                // A disk that hangs at the end counts as a stall.
                Err(RecvTimeoutError::Timeout) => {
                    stall = stall.max(last.elapsed());
                    last = Instant::now();
                    break;
                }
            }
        }
        if written == Bytes::ZERO {
            let message = format!("no block of {BLOCK} was written within {:.1} s", time.as_secs_f64());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        Ok(WriteTest { written, took: last - start, stall, direct: self.is_direct })
    }
}

/// Fills a block with incompressible bytes (xorshift64, Marsaglia 2003).
fn fill(block: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_is_measured_and_nothing_is_left() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        // Ends with the last block; the time limit is for a busy disk.
        let test = measure_here(dir.path(), Duration::from_secs(60), BLOCK * 8).unwrap();
        assert!(test.took > Duration::ZERO && test.stall <= test.took, "{test:?}");
        assert_eq!(test.written, BLOCK * 8);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn page_cache_is_measured_with_its_flushes_and_a_missing_block_is_reported() {
        let disk = |most| TestFile { file: Arc::new(tempfile::tempfile().unwrap()), is_direct: false, most };
        let test = disk(BLOCK).write_for(Duration::from_secs(30)).unwrap();
        assert!(!test.direct && test.written == BLOCK, "{test:?}");
        let error = disk(Bytes::ZERO).write_for(Duration::from_secs(2)).unwrap_err();
        assert_eq!(error.to_string(), "no block of 4 MiB was written within 2.0 s");
    }

    #[test]
    fn blocks_of_two_threads_differ_and_do_not_compress() {
        let (mut a, mut b) = ([0; 64], [0; 64]);
        fill(&mut a, 0);
        fill(&mut b, 1);
        let words: std::collections::HashSet<&[u8]> = a.chunks(8).chain(b.chunks(8)).collect();
        assert_eq!(words.len(), 16);
    }
}
