//! Sends replies over TLS: read, encrypted and written in chunks.

use std::io;
use std::sync::atomic::AtomicU64;

use longhaul_engine::send::Outgoing;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::Timeouts;
use crate::connection::plain_sender::record_sent;
use crate::connection::stall_detector::StallDetector;
use crate::connection::transport::{ReplyError, TLS_CHUNK};
use crate::paths::disks::Disk;

/// Encrypts and writes one chunk while the next is read.
pub(crate) async fn send_tls(
    stream: &mut TlsStream<TcpStream>,
    outgoing: &mut Outgoing,
    (timeouts, sent, disk): (&Timeouts, &AtomicU64, Option<&Disk>),
) -> Result<(), ReplyError> {
    let mut detector = StallDetector::new(stream.get_ref().0, timeouts.stall, timeouts.slowest);
    let mut chunk = read_chunk(outgoing, Vec::new(), disk).await?;
    let mut spare = Vec::new();
    while !chunk.is_empty() {
        let (written, next) = tokio::join!(
            write_tls(stream, &chunk, timeouts, &mut detector),
            read_chunk(outgoing, std::mem::take(&mut spare), disk)
        );
        written?;
        record_sent(outgoing, sent, stream.get_ref().0);
        spare = std::mem::replace(&mut chunk, next?);
    }
    Ok(())
}

async fn write_tls(
    stream: &mut TlsStream<TcpStream>,
    mut chunk: &[u8],
    timeouts: &Timeouts,
    detector: &mut StallDetector,
) -> Result<(), ReplyError> {
    let mut flushed = false;
    while !flushed {
        // Both are cancel-safe: a timeout loses no count of what was written.
        let step = async {
            match chunk {
                [] => stream.flush().await.map(|()| 0),
                chunk => stream.write(chunk).await,
            }
        };
        match timeout(timeouts.stall, step).await {
            Ok(written) => {
                flushed = chunk.is_empty();
                chunk = &chunk[written?..];
            }
            Err(_) if detector.has_progressed(stream.get_ref().0) => {}
            Err(_) => return Err(ReplyError::Stalled(timeouts.stall)),
        }
        if !detector.is_fast_enough(stream.get_ref().0) {
            return Err(ReplyError::Slow(timeouts.slowest));
        }
    }
    Ok(())
}

async fn read_chunk(
    outgoing: &mut Outgoing,
    mut chunk: Vec<u8>,
    disk: Option<&Disk>,
) -> Result<Vec<u8>, ReplyError> {
    chunk.clear();
    if !outgoing.reads_files() {
        outgoing.fill(&mut chunk, TLS_CHUNK)?;
        return Ok(chunk);
    }
    let mut queue = std::mem::take(outgoing);
    let (queue, filled) = blocking(disk, move || {
        let filled = queue.fill(&mut chunk, TLS_CHUNK).map(|()| chunk);
        (queue, filled)
    })
    .await?;
    *outgoing = queue;
    Ok(filled?)
}

/// Runs an operation on files of `disk` on a blocking thread; where there is no disk, the files are
/// in memory.
async fn blocking<T: Send + 'static>(
    disk: Option<&Disk>,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReplyError> {
    match disk {
        Some(disk) => Ok(disk.run(operation).await?),
        None => Ok(spawn_blocking(operation).await.map_err(io::Error::from)?),
    }
}
