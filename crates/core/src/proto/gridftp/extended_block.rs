//! The blocks of MODE E, each with a header of 17 bytes (GFD.20, section 3.3).

use crate::proto::Malformed;
use crate::ranges::ByteRange;
use crate::units::Bytes;

/// The length of a header: descriptor (8 bits), count (64), offset (64), big-endian.
pub const BLOCK_HEADER: usize = 17;

/// The largest accepted number of data connections of one transfer. Globus accepts 1000 (measured
/// 2026-11).
pub const MAX_CHANNELS: u64 = 65_536;

/// The block ends a record; ignored, because records have no meaning in MODE E.
const END_OF_RECORD: u8 = 128;
/// The offset field is the number of EODs to expect.
const END_OF_FILE: u8 = 64;
/// The sender could not read the block without errors.
const ERRORS: u8 = 32;
/// The block is a restart marker of MODE B.
const RESTART: u8 = 16;
/// No further block follows on this connection in this transfer.
const END_OF_DATA: u8 = 8;
/// The sender closes the connection after this block.
const CLOSES: u8 = 4;

/// The checked header of a block: its payload is a valid range, and its number of EODs is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    flags: u8,
    count: u64,
    offset: u64,
}

impl BlockHeader {
    /// Creates the header of a data block.
    pub fn data(range: ByteRange) -> Self {
        Self { flags: 0, count: range.len().get(), offset: range.start() }
    }

    /// Creates the header that ends the data of one connection.
    pub fn end_of_data() -> Self {
        Self { flags: END_OF_DATA, count: 0, offset: 0 }
    }

    /// Creates the header that ends the data of one connection and announces the number of
    /// connections used for the file.
    pub fn end_of_file(channels: u64) -> Self {
        Self { flags: END_OF_FILE | END_OF_DATA, count: 0, offset: channels }
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// [`Malformed`] for a header that is not of MODE E, and for a block that the sender could not
    /// read.
    pub fn decode(bytes: &[u8; BLOCK_HEADER]) -> Result<Self, Malformed> {
        let [flags, numbers @ ..] = *bytes;
        let number =
            |from: usize| numbers[from..from + 8].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let (count, offset) = (number(0), number(8));
        let known = END_OF_RECORD | END_OF_FILE | ERRORS | END_OF_DATA | CLOSES;
        if flags & !known != 0 || flags & RESTART != 0 {
            let why = format!("a data block with the descriptor 0x{flags:02x}, which is not of MODE E");
            return Err(Malformed::new(why));
        }
        if flags & ERRORS != 0 {
            return Err(Malformed::new("a data block that the server marked as read with errors"));
        }
        if flags & END_OF_FILE != 0 {
            if count != 0 || !(1..=MAX_CHANNELS).contains(&offset) {
                let why = format!("an end-of-file block of {count} bytes for {offset} connections");
                return Err(Malformed::new(why));
            }
        } else if offset.checked_add(count).is_none() {
            let why = format!("a data block of {count} bytes at {offset}, beyond the largest file");
            return Err(Malformed::new(why));
        }
        Ok(Self { flags: flags & !END_OF_RECORD, count, offset })
    }

    /// Encodes the header.
    pub fn encode(self) -> [u8; BLOCK_HEADER] {
        let mut bytes = [0; BLOCK_HEADER];
        bytes[0] = self.flags;
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    /// Returns the length of the payload that follows the header.
    pub fn payload_len(self) -> Bytes {
        Bytes::new(self.count)
    }

    /// Returns the range of the payload; `None` if there is no payload.
    pub fn payload(self) -> Option<ByteRange> {
        (self.count > 0).then(|| ByteRange::with_len(self.offset, self.payload_len()))
    }

    /// Returns whether the block ends the data of its connection in this transfer.
    pub fn ends_data(self) -> bool {
        self.flags & END_OF_DATA != 0
    }

    /// Returns the announced number of connections, each of which sends one end of data.
    pub fn channels(self) -> Option<u64> {
        (self.flags & END_OF_FILE != 0).then_some(self.offset)
    }

    /// Returns whether the sender closes the connection after this block.
    pub fn closes(self) -> bool {
        self.flags & CLOSES != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(flags: u8, count: u64, offset: u64) -> [u8; BLOCK_HEADER] {
        BlockHeader { flags, count, offset }.encode()
    }

    #[test]
    fn headers_of_globus_are_decoded_and_others_refused() {
        let data = BlockHeader::decode(&bytes(0, 262_144, 524_288)).unwrap();
        assert_eq!(data.payload(), Some(ByteRange::new(524_288, 786_432)));
        assert!(!data.ends_data() && !data.closes() && data.channels().is_none());
        let end = BlockHeader::decode(&bytes(8, 0, 0)).unwrap();
        assert!(end.ends_data() && end.payload().is_none() && end.channels().is_none());
        let last = BlockHeader::decode(&bytes(72, 0, 4)).unwrap();
        assert!(last.ends_data() && last.channels() == Some(4) && last.payload().is_none());
        assert!(BlockHeader::decode(&bytes(12, 0, 0)).unwrap().closes());
        let both = BlockHeader::decode(&bytes(8, 10, 5)).unwrap();
        assert!(both.ends_data() && both.payload() == Some(ByteRange::new(5, 15)));
        for range in
            [ByteRange::new(0, 1), ByteRange::new(5, 1 << 40), ByteRange::new(u64::MAX - 1, u64::MAX)]
        {
            let block = BlockHeader::decode(&BlockHeader::data(range).encode()).unwrap();
            assert!(block.payload() == Some(range) && !block.ends_data(), "{range:?}");
        }
        let refused = [(32, 5, 0, "read with errors"), (0, 1, u64::MAX, "beyond the largest file")];
        let ends = [(1, 1), (0, 0), (0, MAX_CHANNELS + 1), (0, u64::MAX)];
        let ends = ends.map(|(count, channels)| (72, count, channels, "an end-of-file block"));
        let unknown = [1, 2, 16, 3, 255].map(|flags| (flags, 0, 0, "descriptor"));
        for (flags, count, offset, why) in refused.into_iter().chain(ends).chain(unknown) {
            let error = BlockHeader::decode(&bytes(flags, count, offset)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
