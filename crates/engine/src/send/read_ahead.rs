//! Reads a file ahead of its sender, bypassing the page cache, into a small ring of blocks.
//!
//! ```text
//!   device --O_DIRECT--> block | block | block | block --send(2)--> socket
//!              (a thread)      hashed (a thread)     (the sender)
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use longhaul_core::failure::Failure;
use longhaul_core::ranges::ByteRange;
use longhaul_core::telemetry::Segments;
use longhaul_core::units::Bytes;
use longhaul_sys::direct_io;
use longhaul_sys::memory::AlignedBuf;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::SendFlags;

use super::{SendError, SourceFile, Turn};
use crate::tree_digest::{MIN_BLOCK, TreeDigest};

/// The size of a block, large enough to read a device at its full rate.
const BLOCK: Bytes = Bytes::mib(4);
/// The blocks in the ring: one being sent, one being read, and two to bridge pauses of the device.
const BLOCKS: usize = 4;
/// The maximum wait for the device within one turn.
const PATIENCE: Duration = Duration::from_millis(100);

/// A range of a file that is read ahead.
pub struct ReadAhead {
    source: Arc<SourceFile>,
    filled: Receiver<io::Result<Block>>,
    free: Sender<AlignedBuf>,
    current: Option<Block>,
    left: Bytes,
    sent: Bytes,
    waited: Duration,
    usage: RingUsage,
}

/// A block of file bytes: `memory[start..end]`.
struct Block {
    memory: AlignedBuf,
    start: usize,
    end: usize,
    /// The file offset of the first byte of `memory`.
    at: u64,
}

/// The number of blocks in use, for measurements.
#[derive(Debug, Clone, Default)]
pub struct RingUsage(Arc<AtomicUsize>);

impl RingUsage {
    /// Reads the current use of the ring.
    pub fn read(&self) -> Segments {
        Segments { in_use: self.0.load(Ordering::Relaxed), count: BLOCKS, size: BLOCK }
    }
}

impl ReadAhead {
    /// Starts reading `range` of `source`; O_DIRECT requires offsets aligned to `alignment`. Each
    /// block is added to `tree` before it can be sent.
    ///
    /// # Errors
    /// The kernel's error on the file, on memory for the ring, or on a thread.
    pub fn start(
        source: Arc<SourceFile>,
        alignment: u64,
        range: ByteRange,
        tree: Option<&Arc<TreeDigest>>,
    ) -> io::Result<Self> {
        let file = source.during(|| direct_io::reopen_for_reading(source.file()))?;
        let (to_reader, free) = bounded(BLOCKS);
        let (filled_by_reader, filled) = bounded(BLOCKS);
        for _ in 0..BLOCKS {
            // Cannot fail: the channel has room for all blocks.
            let _ = to_reader.send(AlignedBuf::new(BLOCK.as_usize())?);
        }
        let usage = RingUsage::default();
        let in_use = usage.clone();
        // With a tree, a block of the ring starts on a boundary of the tree's blocks.
        let first = range.start() - range.start() % tree.map_or(alignment, |_| alignment.max(MIN_BLOCK));
        let filled = match tree.cloned() {
            None => filled,
            // On a separate thread: alternating reads and hashing would leave the device idle.
            Some(tree) => {
                let (to_sender, hashed) = bounded(BLOCKS);
                let hash = move || hash_all(&tree, &filled, &to_sender);
                thread::Builder::new().name("ring-hasher".into()).spawn(hash)?;
                hashed
            }
        };
        let watched = Arc::clone(&source);
        let read = move || {
            read_all(&file, &watched, (first, range), alignment, &in_use, &free, &filled_by_reader);
        };
        thread::Builder::new().name("read-ahead".into()).spawn(read)?;
        Ok(Self {
            source,
            filled,
            free: to_reader,
            current: None,
            left: range.len(),
            sent: Bytes::ZERO,
            waited: Duration::ZERO,
            usage,
        })
    }

    /// Returns a handle to the ring's use.
    pub fn usage(&self) -> RingUsage {
        self.usage.clone()
    }

    /// Returns whether all bytes are sent.
    pub fn is_done(&self) -> bool {
        self.left == Bytes::ZERO
    }

    /// Returns how many bytes were sent.
    pub fn sent(&self) -> Bytes {
        self.sent
    }

    /// Returns how long the sender waited for the device since the last call.
    pub fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Moves at most `share` bytes into `socket`.
    ///
    /// # Errors
    /// [`SendError`]; of a changed block, no byte was sent.
    pub fn turn(&mut self, socket: impl AsFd, share: Bytes) -> Result<Turn, SendError> {
        let end = self.sent + share;
        while self.sent < end && !self.is_done() {
            let data = self.next(end - self.sent)?;
            if data.is_empty() {
                return Ok(Turn::More);
            }
            match retry_on_intr(|| rustix::net::send(&socket, data, SendFlags::NOSIGNAL)) {
                Ok(sent) => self.consume(sent),
                Err(Errno::AGAIN) => return Ok(Turn::Blocked),
                Err(error) => return Err(SendError::Socket(error.into())),
            }
        }
        Ok(if self.is_done() { Turn::Done } else { Turn::More })
    }

    /// Appends the next bytes, at most `limit`, to `buffer`; appends nothing once all is sent.
    ///
    /// # Errors
    /// See [`turn`](Self::turn).
    pub fn fill(&mut self, buffer: &mut Vec<u8>, limit: Bytes) -> Result<(), SendError> {
        let data = self.next(limit)?;
        buffer.extend_from_slice(data);
        let copied = data.len();
        self.consume(copied);
        Ok(())
    }

    /// Returns the next bytes, at most `limit`; none if the device is slow, or at the end.
    pub(crate) fn next(&mut self, limit: Bytes) -> Result<&[u8], Failure> {
        if self.current.is_none() && self.left > Bytes::ZERO {
            let began = Instant::now();
            let block = self.filled.recv_timeout(PATIENCE);
            self.waited += began.elapsed();
            match block {
                Ok(Ok(block)) => self.current = Some(block),
                Ok(Err(error)) => return Err(self.source.unreadable(&error)),
                Err(RecvTimeoutError::Timeout) => return Ok(&[]),
                // The file ends before the range.
                Err(RecvTimeoutError::Disconnected) => return Err(self.source.changed()),
            }
            // Checked after the read, so that all bytes sent are of one version.
            self.source.check()?;
        }
        let Some(Block { memory, start, end, .. }) = &self.current else { return Ok(&[]) };
        let end = (*end).min(*start + limit.as_usize());
        Ok(&memory[*start..end])
    }

    /// Removes `sent` bytes from the front.
    pub(crate) fn consume(&mut self, sent: usize) {
        let bytes = Bytes::new(sent as u64);
        (self.sent, self.left) = (self.sent + bytes, self.left - bytes);
        let Some(block) = &mut self.current else { return };
        block.start += sent;
        if block.start == block.end
            && let Some(block) = self.current.take()
        {
            self.usage.0.fetch_sub(1, Ordering::Relaxed);
            // The reader thread has ended once it has read everything.
            let _ = self.free.send(block.memory);
        }
    }
}

/// Adds every block to the tree, and passes it on.
fn hash_all(tree: &TreeDigest, filled: &Receiver<io::Result<Block>>, to_sender: &Sender<io::Result<Block>>) {
    for block in filled {
        if let Ok(Block { memory, end, at, .. }) = &block {
            tree.add_missing(*at, &memory[..*end]);
        }
        if to_sender.send(block).is_err() {
            return;
        }
    }
}

/// Reads `range` in blocks, from the aligned offset `first`, until the end of the range or file, an
/// error, or the receiver is dropped.
fn read_all(
    file: &File,
    source: &SourceFile,
    (first, range): (u64, ByteRange),
    alignment: u64,
    usage: &RingUsage,
    free: &Receiver<AlignedBuf>,
    filled: &Sender<io::Result<Block>>,
) {
    if range.is_empty() {
        return;
    }
    let mut at = first;
    while at < range.end() {
        let Ok(mut memory) = free.recv() else { return };
        usage.0.fetch_add(1, Ordering::Relaxed);
        // Not beyond the range: another stream reads the rest.
        let left = Bytes::new((range.end() - at).next_multiple_of(alignment)).as_usize();
        let wanted = left.min(memory.len());
        let read = source.during(|| read_block(file, &mut memory[..wanted], at, alignment));
        let block = match read {
            Ok(read) => {
                let start = range.start().saturating_sub(at) as usize;
                let end = Bytes::new(range.end() - at).as_usize().min(read);
                (start < end).then_some(Ok(Block { memory, start, end, at }))
            }
            Err(error) => Some(Err(error)),
        };
        let Some(block) = block else {
            usage.0.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let whole = block.as_ref().is_ok_and(|block| block.end == block.memory.len());
        if filled.send(block).is_err() || !whole {
            return;
        }
        at += BLOCK.get();
    }
}

/// Fills `memory`, whose length is a multiple of `alignment`, from the file offset `at`; reads less
/// only at the end of the file.
fn read_block(file: &File, memory: &mut [u8], at: u64, alignment: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < memory.len() {
        match file.read_at(&mut memory[read..], at + read as u64) {
            Ok(n) => read += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        // Only at the end of the file is the length not a multiple; a further read would be
        // unaligned.
        if read == 0 || !(read as u64).is_multiple_of(alignment) || at + read as u64 >= file.metadata()?.len()
        {
            break;
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::source_file::tests::overwrite;

    fn source(dir: &std::path::Path, bytes: &[u8]) -> Option<(Arc<SourceFile>, u64)> {
        let path = dir.join("f");
        std::fs::write(&path, bytes).unwrap();
        let source = SourceFile::new(File::open(&path).unwrap(), path).unwrap();
        let alignment = direct_io::alignment(source.file());
        if alignment.is_none() {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "O_DIRECT is needed");
            println!("skipped: this file system does not tell of Direct I/O");
        }
        Some((Arc::new(source), alignment?))
    }

    fn read(
        source: &Arc<SourceFile>,
        alignment: u64,
        range: ByteRange,
        tree: Option<&Arc<TreeDigest>>,
    ) -> Vec<u8> {
        let mut ahead = ReadAhead::start(Arc::clone(source), alignment, range, tree).unwrap();
        let mut all = Vec::new();
        while !ahead.is_done() {
            ahead.fill(&mut all, Bytes::new(1_000_003)).unwrap();
        }
        assert_eq!(ahead.usage().read().in_use, 0);
        all
    }

    #[test]
    fn ranges_with_unaligned_edges_are_read_and_hashed() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let block = BLOCK.as_usize();
        let bytes: Vec<u8> = (0..5 * block + 1).map(|n| ((n * n) >> 7) as u8).collect();
        for len in [0, 1, 511, 4095, 4096, 4097, block, block + 1, 5 * block + 1] {
            let Some((source, alignment)) = source(dir.path(), &bytes[..len]) else { return };
            for start in [0, 1, 4096, 5000, block - 1, block, 2 * block + 77] {
                for end in [len, len.saturating_sub(3)] {
                    let range = ByteRange::new(start.min(end) as u64, end as u64);
                    let found = read(&source, alignment, range, None);
                    assert!(found == bytes[start.min(end)..end], "{start}..{end} of {len}");
                }
            }
        }
        let length = 3 * BLOCK.get() + 77_777;
        let bytes: Vec<u8> = (0..length).map(|n| ((n * n) >> 9) as u8).collect();
        let Some((source, alignment)) = source(dir.path(), &bytes) else { return };
        // Ranges in reverse order; the first starts within a block of the tree, as after a broken
        // connection.
        for cuts in [vec![0, length], vec![1_000_001, length], vec![0, 5 << 20, length]] {
            let tree = Arc::new(TreeDigest::new(Bytes::new(length)).unwrap());
            for cut in cuts.windows(2).rev() {
                let range = ByteRange::new(cut[0], cut[1]);
                let sent = read(&source, alignment, range, Some(&tree));
                assert!(sent == bytes[cut[0] as usize..cut[1] as usize]);
            }
            let missing = tree.missing();
            if cuts[0] == 0 {
                assert!(missing.is_empty() && tree.root() == Some(blake3::hash(&bytes)));
            } else {
                assert_eq!(missing, [ByteRange::new(0, cuts[0] / MIN_BLOCK * MIN_BLOCK)]);
            }
        }
    }

    #[test]
    fn shrinking_or_changed_file_is_an_error() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let len = 8 * BLOCK.get();
        for shrinks in [true, false] {
            let Some((source, alignment)) = source(dir.path(), &vec![7; len as usize]) else { return };
            let whole = ByteRange::new(0, len);
            let mut ahead = ReadAhead::start(Arc::clone(&source), alignment, whole, None).unwrap();
            let mut all = Vec::new();
            ahead.fill(&mut all, Bytes::new(1)).unwrap();
            let file = File::options().write(true).open(source.path()).unwrap();
            if shrinks {
                file.set_len(len / 2).unwrap()
            } else {
                overwrite(&file, b"x")
            }
            let error = std::iter::repeat_with(|| ahead.fill(&mut all, BLOCK)).find_map(Result::err).unwrap();
            assert!(error.to_string().contains("changed while it was sent"), "{error}");
        }
    }
}
