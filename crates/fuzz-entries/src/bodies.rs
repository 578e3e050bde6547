//! Bodies: the chunked coding, and answers in parts.

use longhaul_core::proto::Malformed;
use longhaul_core::proto::http::{
    ChunkedDecoder, MultipartByteranges, RangeAnswer, RangeRequest, ResponseHead,
};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;

/// Decodes bytes as a chunked body, at once and byte by byte; then encodes and decodes them.
pub fn chunked(bytes: &[u8]) {
    let whole = decode(bytes, usize::MAX);
    assert_eq!(decode(bytes, 1), whole);
    assert_eq!(decode(bytes, 7), whole);

    let mut coded = Vec::new();
    for chunk in bytes.chunks(16) {
        coded.extend_from_slice(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
        coded.extend_from_slice(chunk);
        coded.extend_from_slice(b"\r\n");
    }
    coded.extend_from_slice(b"0\r\nTrailer: x\r\n\r\nnext");
    let decoded = Decoded { payload: bytes.to_vec(), used: coded.len() - 4, done: true };
    assert_eq!(decode(&coded, usize::MAX), Ok(decoded));
}

#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    payload: Vec<u8>,
    used: usize,
    done: bool,
}

/// Decodes a body that arrives in pieces of `piece` bytes.
fn decode(bytes: &[u8], piece: usize) -> Result<Decoded, Malformed> {
    let mut decoder = ChunkedDecoder::default();
    let mut decoded = Decoded { payload: Vec::new(), used: 0, done: false };
    for piece in bytes.chunks(piece.min(bytes.len().max(1))) {
        let mut rest = piece;
        while !rest.is_empty() && !decoder.is_done() {
            let take = decoder.payload_left().as_usize().min(rest.len());
            decoded.payload.extend_from_slice(&rest[..take]);
            decoder.took_payload(Bytes::new(take as u64));
            let framing = decoder.framing(&rest[take..])?;
            assert!(take + framing > 0, "no progress");
            decoded.used += take + framing;
            rest = &rest[take + framing..];
        }
    }
    decoded.done = decoder.is_done();
    Ok(decoded)
}

/// Reads the head of a 206 of any media type: one in parts is refused, and any other only taken as
/// what was asked for.
pub fn multipart(bytes: &[u8]) {
    let media_type: Vec<u8> = bytes.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    let head = [
        b"HTTP/1.1 206 X\r\nContent-Range: bytes 0-1/9\r\nContent-Type: ".as_slice(),
        &media_type,
        b"\r\n\r\n",
    ];
    if let Ok(head) = ResponseHead::parse(&head.concat()) {
        let asked = RangeRequest::of(ByteRange::new(0, 2));
        let in_parts =
            media_type.trim_ascii_start().to_ascii_lowercase().starts_with(b"multipart/byteranges;");
        let answer = RangeAnswer::of(&head, asked.as_ref());
        assert!(answer.is_err() || !in_parts, "parts were taken for the file");
    }
    // Our own server's framing has the length that is announced.
    let mut parts: Vec<ByteRange> = Vec::new();
    for pair in bytes.chunks_exact(2).take(20) {
        let start = parts.last().map_or(0, |part| part.end()) + u64::from(pair[0]);
        parts.push(ByteRange::new(start, start + 1 + u64::from(pair[1])));
    }
    let frame = MultipartByteranges::new("SEP", "text/plain", Bytes::new(1 << 20));
    let framing: usize =
        parts.iter().map(|part| frame.before(*part).len()).sum::<usize>() + frame.end().len();
    let payload: u64 = parts.iter().map(|part| part.len().get()).sum();
    assert_eq!(frame.content_length(&parts).get(), framing as u64 + payload);
}
