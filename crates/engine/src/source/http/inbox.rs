//! Bytes received beyond what was wanted: the start of a body behind its head, or chunk framing.

/// A queue of bytes that is almost always empty or small.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    filled: usize,
}

impl Inbox {
    /// Returns what has not been consumed.
    pub(super) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.filled]
    }

    /// Drops `n` bytes off the front.
    pub(super) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.filled);
    }

    /// Moves bytes off the front into `buffer`; returns how many.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let n = self.data().len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.data()[..n]);
        self.consume(n);
        n
    }

    /// Returns room for `n` more bytes; report those that came with [`received`](Self::received).
    pub(super) fn room(&mut self, n: usize) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.bytes.len() < self.filled + n {
            self.bytes.resize(self.filled + n, 0);
        }
        &mut self.bytes[self.filled..self.filled + n]
    }

    /// Accounts for `n` bytes written into the room.
    pub(super) fn received(&mut self, n: usize) {
        self.filled = (self.filled + n).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_in_order() {
        let mut inbox = Inbox::default();
        inbox.room(8)[..5].copy_from_slice(b"hello");
        inbox.received(5);
        inbox.consume(1);
        inbox.room(4)[..3].copy_from_slice(b"abc");
        inbox.received(3);
        assert_eq!(inbox.data(), b"elloabc");
        let mut buffer = [0; 5];
        assert_eq!((inbox.take(&mut buffer), &buffer), (5, b"elloa"));
        assert_eq!((inbox.take(&mut buffer), inbox.data()), (2, &b""[..]));
    }
}
