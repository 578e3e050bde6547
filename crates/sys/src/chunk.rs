//! Memory in chunks of huge pages, lent in pieces.

use std::io;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::AlignedBuf;

/// Memory whose parts are lent as [`Piece`]s; unmapped with its last piece.
///
/// Uses huge pages if it is large enough and the kernel has free ones (transparent huge pages).
#[derive(Debug)]
pub struct Chunk {
    /// Accessed only through pieces.
    memory: AlignedBuf,
    /// One bit for each of the [`Chunk::BLOCKS`] equal blocks, set while the block is lent.
    lent: AtomicU64,
}

/// An exclusively owned part of a chunk; freed on drop.
#[derive(Debug)]
pub struct Piece {
    chunk: Arc<Chunk>,
    start: *mut u8,
    len: usize,
    bits: u64,
}

// SAFETY: a piece has its blocks alone; nothing about them is tied to a thread.
unsafe impl Send for Piece {}
// SAFETY: shared access only reads.
unsafe impl Sync for Piece {}

impl Chunk {
    /// The number of blocks of a chunk; a piece is one or more blocks.
    pub const BLOCKS: usize = 64;

    /// Maps a chunk of `len` bytes; pages are allocated when first touched.
    ///
    /// # Errors
    /// ENOMEM; EINVAL if `len` is not a multiple of [`Self::BLOCKS`].
    pub fn new(len: usize) -> io::Result<Arc<Self>> {
        if len == 0 || !len.is_multiple_of(Self::BLOCKS) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Arc::new(Self { memory: AlignedBuf::new(len)?, lent: AtomicU64::new(0) }))
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// Returns whether no piece is lent.
    pub fn is_free(&self) -> bool {
        self.lent.load(Ordering::Acquire) == 0
    }

    /// Lends `len` bytes, aligned to `len`; `None` if none are free, or `len` is not a power of two
    /// of blocks.
    pub fn lend(self: &Arc<Self>, len: usize) -> Option<Piece> {
        let block = self.size() / Self::BLOCKS;
        let blocks = len / block;
        if !len.is_multiple_of(block) || !blocks.is_power_of_two() || blocks > Self::BLOCKS {
            return None;
        }
        let run = u64::MAX >> (Self::BLOCKS - blocks);
        let mut lent = self.lent.load(Ordering::Relaxed);
        loop {
            let first = (0..Self::BLOCKS).step_by(blocks).find(|first| lent & (run << first) == 0)?;
            let bits = run << first;
            // Acquire: all accesses of earlier owners of the blocks have completed.
            match self.lent.compare_exchange_weak(lent, lent | bits, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let start = self.memory.start().wrapping_add(first * block);
                    return Some(Piece { chunk: Arc::clone(self), start, len, bits });
                }
                Err(now) => lent = now,
            }
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped as long as `chunk` lives, initialised (zeroed), and lent to
        // this piece alone.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // Release: the next owner sees all accesses of this one as completed.
        self.chunk.lent.fetch_and(!self.bits, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 4 << 20;
    const BLOCK: usize = LEN / Chunk::BLOCKS;

    #[test]
    fn pieces_are_aligned_powers_of_two_that_never_overlap() {
        let chunk = Chunk::new(LEN).unwrap();
        let sizes = [BLOCK, 4 * BLOCK, BLOCK, 32 * BLOCK, 16 * BLOCK, BLOCK];
        let mut pieces: Vec<_> = sizes.map(|size| chunk.lend(size).unwrap()).into();
        for (mark, piece) in (1..).zip(&mut pieces) {
            assert_eq!(piece.as_ptr().addr() % piece.len().min(2 << 20), 0);
            piece.fill(mark);
        }
        for (mark, piece) in (1..).zip(&pieces) {
            assert!(piece.iter().all(|byte| *byte == mark));
        }
        assert!(chunk.lend(32 * BLOCK).is_none() && !chunk.is_free());
        drop(pieces);
        assert!(chunk.is_free() && chunk.lend(LEN).is_some());
        for len in [0, 1, BLOCK / 2, 3 * BLOCK, BLOCK + 1, 2 * LEN] {
            assert!(chunk.lend(len).is_none(), "{len}");
        }
        assert!(Chunk::new(0).is_err() && Chunk::new(100).is_err());
    }

    #[test]
    fn freed_memory_is_lent_again_and_keeps_its_chunk_alive() {
        let chunk = Chunk::new(LEN).unwrap();
        let all: Vec<_> = (0..Chunk::BLOCKS).map(|_| chunk.lend(BLOCK).unwrap()).collect();
        assert!(chunk.lend(BLOCK).is_none());
        let at = all[5].as_ptr();
        drop(all);
        let [_, _, _, _, _, mut sixth] = [(); 6].map(|()| chunk.lend(BLOCK).unwrap());
        drop(chunk);
        sixth[BLOCK - 1] = 7;
        assert_eq!((sixth.as_ptr(), sixth[BLOCK - 1]), (at, 7));
    }

    #[test]
    fn threads_get_disjoint_pieces() {
        let chunk = Chunk::new(LEN).unwrap();
        std::thread::scope(|threads| {
            for mark in 1..=4 {
                let chunk = &chunk;
                threads.spawn(move || {
                    for _ in 0..2000 {
                        let Some(mut piece) = chunk.lend(16 * BLOCK) else { continue };
                        piece[..64].fill(mark);
                        assert!(piece[..64].iter().all(|byte| *byte == mark));
                    }
                });
            }
        });
        assert!(chunk.is_free());
    }
}
