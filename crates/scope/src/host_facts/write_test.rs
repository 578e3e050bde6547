//! Measures how fast a disk writes, and how long it stalls.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::host_check::{Reading, WriteTest};
use longhaul_core::units::Bytes;
use longhaul_sys::direct_io;
use longhaul_sys::memory::AlignedBuf;

/// Size and number of writes at once, as of the direct writer of a transfer (UsadaFox: 4 MiB).
const BLOCK: Bytes = Bytes::mib(4);
const THREADS: usize = 4;
/// The share of the free space that is written at most.
const FREE_SHARE: u64 = 10;
/// The most that is written: what a fast disk takes in the time, without wearing it.
const MOST: Bytes = Bytes::gib(4);

/// Writes blocks to a file without a name in `directory` for `time`; Direct I/O, else the page cache and fdatasync.
///
/// The file never has a name where the file system knows O_TMPFILE, and loses it at once elsewhere: nothing is left
/// behind, whatever ends the process. `time` bounds the wait for a disk that hangs, too.
///
/// # Errors
/// What keeps the directory from being written to.
pub fn measure(directory: &Path, time: Duration) -> Reading<WriteTest> {
    /// For what precedes the measurement: a file, a first write.
    const SETUP: Duration = Duration::from_millis(500);
    let (tell, ended) = channel();
    let own = directory.to_owned();
    thread::Builder::new()
        .name("disk-test".to_owned())
        .spawn(move || drop(tell.send(measure_here(&own, time))))
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    let hangs = |_| {
        Err(format!("no write in {} ended within {:.1} s", directory.display(), (time + SETUP).as_secs_f64()))
    };
    ended.recv_timeout(time + SETUP).unwrap_or_else(hangs)
}

fn measure_here(directory: &Path, time: Duration) -> Reading<WriteTest> {
    let failed = |error: io::Error| format!("cannot write in {}: {error}", directory.display());
    let file = tempfile::tempfile_in(directory).map_err(failed)?;
    let free = rustix::fs::fstatvfs(&file).map_err(|error| failed(error.into()))?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    let most = Bytes::new(free / FREE_SHARE).min(MOST);
    if most < BLOCK {
        return Err(format!("cannot write in {}: too little space is free", directory.display()));
    }
    let direct = direct_file(&file);
    let is_direct = direct.is_some();
    let disk = Disk { file: Arc::new(direct.unwrap_or(file)), is_direct, most };
    disk.write_for(time).map_err(failed)
}

/// Opens the file past the page cache, where a write shows that it works.
fn direct_file(file: &File) -> Option<File> {
    let direct = direct_io::reopen(file).ok()?;
    let block = AlignedBuf::new(BLOCK.as_usize()).ok()?;
    direct.write_all_at(&block, 0).ok()?;
    Some(direct)
}

/// What is written to, and how much at most.
struct Disk {
    file: Arc<File>,
    is_direct: bool,
    most: Bytes,
}

/// What the threads share.
#[derive(Default)]
struct Progress {
    next: AtomicU64,
    stop: AtomicBool,
}

impl Disk {
    fn write_for(&self, time: Duration) -> io::Result<WriteTest> {
        let progress = Arc::new(Progress::default());
        let (tell, ended) = channel();
        let start = Instant::now();
        for number in 0..THREADS {
            self.start_writer(number, &progress, tell.clone())?;
        }
        drop(tell);
        let result = self.collect(&ended, start, time);
        progress.stop.store(true, Ordering::Relaxed);
        result
    }

    /// Starts a thread that writes blocks until it is told to stop, and reports each; a disk that hangs holds it alone.
    fn start_writer(
        &self,
        number: usize,
        progress: &Arc<Progress>,
        tell: Sender<io::Result<Instant>>,
    ) -> io::Result<()> {
        let (file, progress, most) = (Arc::clone(&self.file), Arc::clone(progress), self.most.get());
        let is_direct = self.is_direct;
        let mut block = AlignedBuf::new(BLOCK.as_usize())?;
        // Blocks of zeros could be compressed away.
        fill(&mut block, number as u64);
        let write = move || {
            while !progress.stop.load(Ordering::Relaxed) {
                let offset = progress.next.fetch_add(BLOCK.get(), Ordering::Relaxed);
                if offset + BLOCK.get() > most {
                    break;
                }
                let written = file.write_all_at(&block, offset);
                let written = written.and_then(|()| if is_direct { Ok(()) } else { file.sync_data() });
                // The receiver is gone once the time is over.
                if tell.send(written.map(|()| Instant::now())).is_err() {
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
                // A disk that hangs at the end stalls too.
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

/// Fills a block with bytes that do not compress (xorshift64, Marsaglia 2003).
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
    fn disk_is_measured_in_the_time_and_nothing_is_left() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let test = measure(dir.path(), Duration::from_millis(200)).unwrap();
        assert!(test.written >= BLOCK && test.took > Duration::ZERO && test.stall <= test.took, "{test:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn directory_that_cannot_be_written_is_named() {
        let error = measure(Path::new("/proc"), Duration::from_millis(50)).unwrap_err();
        assert!(error.starts_with("cannot write in /proc: "), "{error}");
    }

    #[test]
    fn page_cache_is_measured_with_its_flushes() {
        let disk = Disk { file: Arc::new(tempfile::tempfile().unwrap()), is_direct: false, most: BLOCK };
        let test = disk.write_for(Duration::from_secs(30)).unwrap();
        assert!(!test.direct && test.written == BLOCK, "{test:?}");
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
