//! The third buffer: the ways in which segments are written to the file.

mod direct;
mod stream;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_sys::file_map::FileMap;
use longhaul_sys::write_back;
use parking_lot::Mutex;

use direct::Direct;
pub(crate) use stream::StreamWriter;

/// Writes pieces of a file; several threads may write different pieces at once.
pub trait Writer: Send + Sync {
    /// Returns the writer's name on the command line.
    fn name(&self) -> &'static str;

    /// Writes all of `data` at `offset` of the file.
    ///
    /// # Errors
    /// The kernel's error on the file.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Returns the useful number of threads: the requests that the device can process at once.
    fn threads(&self) -> usize;
}

/// The choice of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriterChoice {
    /// `direct` if the kernel reports that the file system supports it, else `buffered`.
    #[default]
    Auto,
    /// O_DIRECT, bypassing the page cache.
    Direct,
    /// A shared mapping with `madvise(MADV_SEQUENTIAL)`, as in UsadaFox.
    Mmap,
    /// pwrite, with write-back started at once and clean pages dropped.
    Buffered,
}

impl WriterChoice {
    /// Returns the choice's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Mmap => "mmap",
            Self::Buffered => "buffered",
        }
    }
}

/// Creates a writer for `file`, whose size may be unknown.
///
/// # Errors
/// For `Direct` and `Mmap` if the file system, or an unknown size, does not permit them.
pub fn open(choice: WriterChoice, file: &File, size: Option<Bytes>) -> io::Result<Box<dyn Writer>> {
    match choice {
        WriterChoice::Direct => Ok(Box::new(Direct::new(file)?)),
        WriterChoice::Mmap => {
            let why = "a mapping needs a file of known size; use --writer auto";
            let size = size.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, why))?.as_usize();
            Ok(Box::new((size > 0).then(|| FileMap::new(file, size)).transpose()?))
        }
        WriterChoice::Buffered => Ok(Box::new(Buffered::new(file)?)),
        WriterChoice::Auto => match Direct::where_known(file) {
            Ok(direct) => Ok(Box::new(direct)),
            Err(_) => Ok(Box::new(Buffered::new(file)?)),
        },
    }
}

/// Writes with pwrite through the page cache, and bounds dirty pages so that the kernel never
/// throttles the writer for long: write-back starts at once, and clean pages are dropped.
#[derive(Debug)]
struct Buffered {
    file: File,
    /// Pieces whose write-back has started, oldest first.
    in_write_back: Mutex<VecDeque<ByteRange>>,
}

/// The number of pieces in write-back before the oldest is awaited: enough to keep a fast device
/// busy.
const MAX_WRITE_BACK: usize = 8;

impl Buffered {
    fn new(file: &File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, in_write_back: Mutex::default() })
    }
}

impl Writer for Buffered {
    fn name(&self) -> &'static str {
        "buffered"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        let written = ByteRange::with_len(offset, Bytes::new(data.len() as u64));
        write_back::start(&self.file, written)?;
        let oldest = {
            let mut in_write_back = self.in_write_back.lock();
            in_write_back.push_back(written);
            if in_write_back.len() > MAX_WRITE_BACK { in_write_back.pop_front() } else { None }
        };
        oldest.map_or(Ok(()), |range| write_back::finish_and_drop(&self.file, range))
    }

    fn threads(&self) -> usize {
        // The kernel serialises writes to one inode; the second thread waits for write-back
        // meanwhile.
        2
    }
}

/// A shared mapping of the file, into which segments are copied: UsadaFox's third buffer. The
/// kernel decides when to write them back, as in the paper; an empty file cannot be mapped, and
/// needs no mapping.
///
/// Starting write-back after each segment (sync_file_range) doubled the CPU time in a measurement:
/// pages in use are write-protected and faulted in again.
impl Writer for Option<FileMap> {
    fn name(&self) -> &'static str {
        "mmap"
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.as_ref().map_or(Ok(()), |map| map.write_at(offset, data))
    }

    fn threads(&self) -> usize {
        2
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn mapping_without_a_size_and_direct_io_without_support_are_refused() {
        let file = tempfile::tempfile_in(".").unwrap();
        assert!(open(WriterChoice::Mmap, &file, None).is_err());
        // /proc/version cannot be opened with O_DIRECT.
        let file = File::open("/proc/version").unwrap();
        let Err(error) = open(WriterChoice::Direct, &file, None) else { panic!("/proc/version is written") };
        assert!(error.to_string().contains("refuses O_DIRECT"), "{error}");
    }

    /// tmpfs does not report support for Direct I/O, but accepts it since Linux 6.6.
    #[test]
    fn trial_of_direct_io_leaves_the_file_unchanged() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
        for content in [vec![], vec![7; 100], vec![7; 1 << 20]] {
            file.set_len(0).unwrap();
            file.write_all_at(&content, 0).unwrap();
            let opened = open(WriterChoice::Direct, &file, None);
            let mut after = Vec::new();
            (&file).rewind().unwrap();
            (&file).read_to_end(&mut after).unwrap();
            assert!(after == content, "{} bytes", content.len());
            if let Err(error) = opened {
                assert!(error.to_string().contains("refuses O_DIRECT"), "{error}");
            }
        }
        assert_eq!(open(WriterChoice::Auto, &file, None).unwrap().name(), "buffered");
    }
}
