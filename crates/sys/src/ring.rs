//! A bounded byte ring between one writing and one reading thread, used in place.

use std::io;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::host;

/// The bytes before each record: its stamp, its length, and padding to [`ALIGN`].
const HEADER: usize = 16;
/// Records start at multiples of this, so that a header never crosses the ring's end.
const ALIGN: usize = 16;
/// A length that marks the next record as being at the ring's start.
const WRAP: u64 = u64::MAX;

/// The divisor of the available memory up to which the ring is populated in advance.
const READY: u64 = 8;

/// Creates a ring of `capacity` bytes, rounded up to 2 MiB.
///
/// Populates the memory in advance if it is at most an eighth of the available memory, with huge
/// pages if the kernel allows them: a page fault on first use would delay the writer by
/// milliseconds.
///
/// # Errors
/// The kernel's error if the address space has no room for the ring.
pub fn ring(capacity: usize) -> io::Result<(Producer, Consumer)> {
    const HUGE_PAGE: usize = 2 << 20;
    let capacity = capacity
        .max(HUGE_PAGE)
        .checked_next_multiple_of(HUGE_PAGE)
        .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let memory = MmapRaw::from(MmapOptions::new().len(capacity).no_reserve_swap().map_anon()?);
    // Hints, which a kernel that does not know them refuses.
    let _ = memory.advise(Advice::HugePage);
    if host::available_memory().is_some_and(|available| capacity as u64 <= available.get() / READY) {
        // Kernels before 5.14 refuse, and fault pages in on first use.
        let _ = memory.advise(Advice::PopulateWrite);
    }
    let shared = Arc::new(RingState { memory, head: AtomicUsize::new(0), tail: AtomicUsize::new(0) });
    Ok((Producer { shared: Arc::clone(&shared), head: 0, reserved: None }, Consumer { shared, tail: 0 }))
}

/// The state of a ring. Positions count all bytes passed so far; the memory offset is the position
/// modulo the length.
struct RingState {
    /// Producer and consumer keep their accesses disjoint.
    memory: MmapRaw,
    /// The start of the next record; stored by the producer only.
    head: AtomicUsize,
    /// The start of the oldest record; stored by the consumer only.
    tail: AtomicUsize,
}

impl RingState {
    fn put_header(&self, offset: usize, stamp: u64, len: u64) {
        debug_assert!(offset.is_multiple_of(ALIGN) && offset + HEADER <= self.memory.len());
        // SAFETY: in bounds and aligned (the mapping is page-aligned, offsets are multiples of
        // ALIGN), and the producer alone touches bytes between head and tail + capacity.
        unsafe {
            let at = self.memory.as_mut_ptr().add(offset).cast::<u64>();
            at.write(stamp);
            at.add(1).write(len);
        }
    }

    fn header(&self, offset: usize) -> (u64, u64) {
        debug_assert!(offset.is_multiple_of(ALIGN) && offset + HEADER <= self.memory.len());
        // SAFETY: in bounds and aligned as above; written before the head that covers it was
        // released, and the producer does not touch it until the tail passes it.
        unsafe {
            let at = self.memory.as_mut_ptr().add(offset).cast::<u64>();
            (at.read(), at.add(1).read())
        }
    }
}

/// The writing end of a ring.
pub struct Producer {
    shared: Arc<RingState>,
    head: usize,
    /// The length of the last reserved, uncommitted slice.
    reserved: Option<usize>,
}

impl Producer {
    /// Returns `len` bytes to fill and then [`commit`](Self::commit); `None` while the ring has too
    /// little space.
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        let capacity = self.shared.memory.len();
        let need = HEADER.checked_add(len)?.checked_next_multiple_of(ALIGN)?;
        let used = self.head - self.shared.tail.load(Ordering::Acquire);
        let mut offset = self.head % capacity;
        let to_end = capacity - offset;
        if to_end < need {
            if used + to_end + need > capacity {
                return None;
            }
            self.shared.put_header(offset, 0, WRAP);
            self.head += to_end;
            offset = 0;
        } else if used + need > capacity {
            return None;
        }
        self.reserved = Some(len);
        // SAFETY: HEADER + len bytes from `offset` lie inside the mapping and outside what the
        // consumer may read; the borrow of self keeps a second slice from being made.
        Some(unsafe { slice::from_raw_parts_mut(self.shared.memory.as_mut_ptr().add(offset + HEADER), len) })
    }

    /// Passes the first `len` bytes of the last reserved slice to the consumer, under `stamp`.
    ///
    /// Does nothing without a reservation; commits at most the reserved bytes.
    pub fn commit(&mut self, stamp: u64, len: usize) {
        let Some(reserved) = self.reserved.take() else { return };
        let len = len.min(reserved);
        let offset = self.head % self.shared.memory.len();
        self.shared.put_header(offset, stamp, len as u64);
        self.head += (HEADER + len).next_multiple_of(ALIGN);
        self.shared.head.store(self.head, Ordering::Release);
    }
}

/// The reading end of a ring.
pub struct Consumer {
    shared: Arc<RingState>,
    tail: usize,
}

impl Consumer {
    /// Returns the oldest record as stamp and bytes; `None` while the ring is empty.
    pub fn peek(&mut self) -> Option<(u64, &[u8])> {
        let head = self.shared.head.load(Ordering::Acquire);
        let capacity = self.shared.memory.len();
        if self.tail == head {
            return None;
        }
        let mut offset = self.tail % capacity;
        let (mut stamp, mut len) = self.shared.header(offset);
        if len == WRAP {
            // A wrap mark is published with the record after it.
            self.tail += capacity - offset;
            offset = 0;
            (stamp, len) = self.shared.header(offset);
        }
        // SAFETY: the producer wrote `len` bytes here before releasing `head`, and leaves them
        // alone until the tail passes them, which needs `&mut self` again.
        let bytes = unsafe {
            slice::from_raw_parts(self.shared.memory.as_mut_ptr().add(offset + HEADER), len as usize)
        };
        Some((stamp, bytes))
    }

    /// Returns the memory of the record of [`peek`](Self::peek) to the producer.
    pub fn release(&mut self) {
        if let Some((_, bytes)) = self.peek() {
            let len = bytes.len();
            self.tail += (HEADER + len).next_multiple_of(ALIGN);
            self.shared.tail.store(self.tail, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_records_of_all_lengths_in_order_between_threads() {
        let (mut producer, mut consumer) = ring(1).unwrap();
        const RECORDS: u64 = 20_000;
        let writer = std::thread::spawn(move || {
            for stamp in 0..RECORDS {
                let len = (stamp * 7919 % 4001) as usize;
                loop {
                    if let Some(slot) = producer.reserve(4096) {
                        slot[..len].fill(stamp as u8);
                        break;
                    }
                    std::thread::yield_now();
                }
                producer.commit(stamp, len);
            }
        });
        for expected in 0..RECORDS {
            loop {
                if let Some((stamp, bytes)) = consumer.peek() {
                    assert_eq!(stamp, expected);
                    assert_eq!(bytes.len() as u64, expected * 7919 % 4001);
                    assert!(bytes.iter().all(|byte| *byte == expected as u8));
                    break;
                }
                std::thread::yield_now();
            }
            consumer.release();
        }
        writer.join().unwrap();
        assert!(consumer.peek().is_none());
    }

    #[test]
    fn full_ring_refuses_until_a_release_and_a_too_large_record_always() {
        let (mut producer, mut consumer) = ring(2 << 20).unwrap();
        let mut records = 0;
        while producer.reserve(64 << 10).is_some() {
            producer.commit(records, 64 << 10);
            records += 1;
        }
        assert_eq!(records, 31, "2 MiB less the headers");
        assert_eq!(consumer.peek().map(|(stamp, _)| stamp), Some(0));
        consumer.release();
        consumer.release();
        assert!(producer.reserve(64 << 10).is_some());
        let (mut producer, _consumer) = ring(1).unwrap();
        assert!(producer.reserve(usize::MAX).is_none());
        assert!(producer.reserve(4 << 20).is_none());
    }
}
