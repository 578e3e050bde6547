//! Captures a host's packets to `pcap` files (draft-ietf-opsawg-pcap) with nanosecond times.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use longhaul_sys::tun::VNET_HEADER_LEN;
use parking_lot::Mutex;

use crate::clock;
use crate::error::LabError;

const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// The pcap version: major and minor.
const VERSION: [u16; 2] = [2, 4];
const LINKTYPE_RAW: u32 = 101;
/// Captured bytes per packet: enough for IPv6 and TCP headers with all options, and some payload.
const SNAPLEN: usize = 200;

/// A capture file shared by the threads of both directions.
#[derive(Debug, Clone)]
pub(crate) struct Capture(Arc<Mutex<CaptureFile>>);

#[derive(Debug)]
struct CaptureFile {
    to: BufWriter<File>,
    /// The first write error; no write follows it.
    failed: Option<io::Error>,
}

impl Capture {
    /// Creates the file; errors name `option`.
    pub(crate) fn create(path: &Path, option: &'static str) -> Result<Self, LabError> {
        let create = || -> io::Result<BufWriter<File>> {
            let mut to = BufWriter::with_capacity(1 << 20, File::create(path)?);
            to.write_all(&MAGIC_NANOS.to_ne_bytes())?;
            VERSION.iter().try_for_each(|field| to.write_all(&field.to_ne_bytes()))?;
            [0, 0, SNAPLEN as u32, LINKTYPE_RAW]
                .iter()
                .try_for_each(|field| to.write_all(&field.to_ne_bytes()))?;
            to.flush()?;
            Ok(to)
        };
        let to = create().map_err(LabError::create(path, option))?;
        Ok(Self(Arc::new(Mutex::new(CaptureFile { to, failed: None }))))
    }

    /// Writes the start of a frame with the current time. A super-packet is one packet, as in
    /// `tcpdump` on a host with offloads.
    pub(crate) fn frame(&self, frame: &[u8]) {
        let packet = frame.get(VNET_HEADER_LEN..).unwrap_or_default();
        // Taken under the lock, so that times are monotonic.
        let mut file = self.0.lock();
        if file.failed.is_some() {
            return;
        }
        let now = clock::time_of_day();
        let kept = &packet[..packet.len().min(SNAPLEN)];
        let head = [now.as_secs() as u32, now.subsec_nanos(), kept.len() as u32, packet.len() as u32];
        let written = head.iter().try_for_each(|field| file.to.write_all(&field.to_ne_bytes()));
        if let Err(error) = written.and_then(|()| file.to.write_all(kept)) {
            tracing::error!("the lab's capture ends early: {error}");
            file.failed = Some(error);
        }
    }

    /// Flushes buffered packets.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let mut file = self.0.lock();
        match file.failed.take() {
            Some(error) => Err(error),
            None => file.to.flush(),
        }
    }
}
