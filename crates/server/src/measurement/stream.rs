//! Bytes over TCP, of a number, a send buffer and a congestion control that the client chooses.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::proto::http::ReplyHead;
use longhaul_core::units::Bytes;
use longhaul_engine::send::{Piece, SourceFile};
use rustix::fs::{MemfdFlags, memfd_create};
use socket2::SockRef;

use crate::reply::Reply;

/// The bytes that are repeated: few system calls a second, and little memory.
const BLOCK: Bytes = Bytes::mib(4);

/// What is sent: bytes in memory that do not compress, sent by sendfile as files are.
pub(super) struct StreamSource(Arc<SourceFile>);

impl StreamSource {
    pub(super) fn new() -> io::Result<Self> {
        let mut file = File::from(memfd_create("longhaul-measure", MemfdFlags::CLOEXEC)?);
        let mut block = Vec::with_capacity(BLOCK.as_usize());
        // A hash's output is as good as random: no link that compresses looks faster than it is.
        let mut random = blake3::Hasher::new().finalize_xof();
        block.resize(BLOCK.as_usize(), 0);
        random.fill(&mut block);
        file.write_all(&block)?;
        Ok(Self(Arc::new(SourceFile::new(file, PathBuf::from("the measurement's bytes"))?)))
    }

    /// Makes a reply of so many bytes.
    pub(super) fn reply(&self, bytes: Bytes) -> Reply {
        let head = ReplyHead::new(200)
            .with("Content-Type", "application/octet-stream")
            .with("Cache-Control", "no-store");
        let mut pieces = Vec::new();
        let mut left = bytes;
        while left > Bytes::ZERO {
            let length = left.min(BLOCK);
            pieces.push(Piece::File { source: Arc::clone(&self.0), start: Bytes::ZERO, length });
            left = left - length;
        }
        Reply::new(head, pieces)
    }
}

/// What a client asks for in the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamRequest {
    pub(super) bytes: Bytes,
    pub(super) congestion: Option<String>,
    send_buffer: Option<Bytes>,
}

impl StreamRequest {
    /// Reads `?bytes=N[&congestion=NAME][&send_buffer=N]`; no stream has more than `most`.
    pub(super) fn parse(target: &str, most: Bytes) -> Result<Self, &'static str> {
        let mut request = Self { bytes: Bytes::ZERO, congestion: None, send_buffer: None };
        let query = target.split_once('?').map_or("", |(_, query)| query);
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let number = || value.parse().map(Bytes::new).map_err(|_| "a size is a number of bytes");
            match name {
                "bytes" => request.bytes = number()?,
                "send_buffer" => request.send_buffer = Some(number()?),
                "congestion" if value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                    request.congestion = Some(value.to_owned());
                }
                "congestion" => return Err("a congestion control is a word such as cubic"),
                _ => return Err("the query has bytes, congestion and send_buffer only"),
            }
        }
        if request.bytes == Bytes::ZERO || request.bytes > most {
            return Err("the query names bytes from 1 to the most that is offered");
        }
        Ok(request)
    }

    /// Sets the connection up; it is closed after the reply.
    pub(super) fn set_up(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let options = SockRef::from(&socket);
        if let Some(name) = &self.congestion {
            options.set_tcp_congestion(name.as_bytes())?;
        }
        if let Some(size) = self.send_buffer {
            // The kernel bounds it by net.core.wmem_max.
            options.set_send_buffer_size(size.as_usize().min(i32::MAX as usize))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_read_and_bounded_and_the_reply_has_as_many_bytes() {
        let parse = |query: &str| StreamRequest::parse(&format!("/x?{query}"), Bytes::mib(1));
        let all = parse("bytes=1000&congestion=cubic&send_buffer=65536").unwrap();
        assert_eq!((all.bytes, all.send_buffer), (Bytes::new(1000), Some(Bytes::kib(64))));
        assert_eq!(all.congestion.as_deref(), Some("cubic"));
        for bad in ["", "bytes=0", "bytes=1048577", "bytes=-1", "bytes=1&congestion=a;b", "bytes=1&size=2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let source = StreamSource::new().unwrap();
        for bytes in [Bytes::new(1), BLOCK, BLOCK * 3 + Bytes::new(5)] {
            assert_eq!(source.reply(bytes).length(), bytes);
        }
    }
}
