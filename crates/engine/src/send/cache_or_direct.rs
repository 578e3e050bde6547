//! The way in which a file is read for sending: through the page cache by sendfile, or past it by
//! Direct I/O.

use std::io;

use longhaul_core::units::Bytes;
use longhaul_sys::{cachestat, direct_io};

use super::SourceFile;

/// The choice of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReaderChoice {
    /// sendfile if the page cache holds most of the file, else Direct I/O if the file system
    /// supports it.
    #[default]
    Auto,
    /// sendfile, through the page cache.
    Sendfile,
    /// Direct I/O, bypassing the page cache.
    Direct,
}

/// The way in which a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// From the page cache, by sendfile.
    PageCache {
        /// Whether sent pages are dropped from the cache: those of a file that was not cached, so
        /// that a file larger than memory does not evict others.
        drop_behind: bool,
    },
    /// From the device into memory of this process, by Direct I/O.
    Direct {
        /// The alignment in bytes that O_DIRECT requires of offsets, lengths and memory.
        alignment: u64,
    },
}

/// A file up to this size is read through the page cache: a ring does not pay.
const SMALL: Bytes = Bytes::mib(16);

impl Reader {
    /// Chooses the reader of `source`.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if [`ReaderChoice::Direct`] is not available.
    pub fn choose(choice: ReaderChoice, source: &SourceFile) -> io::Result<Self> {
        let direct = || {
            let alignment = direct_io::alignment(source.file())?;
            direct_io::reopen_for_reading(source.file()).ok().map(|_| Self::Direct { alignment })
        };
        match choice {
            ReaderChoice::Sendfile => Ok(Self::PageCache { drop_behind: false }),
            ReaderChoice::Direct => direct().ok_or_else(|| io::ErrorKind::Unsupported.into()),
            ReaderChoice::Auto if is_warm(source) => Ok(Self::PageCache { drop_behind: false }),
            ReaderChoice::Auto => Ok(direct().unwrap_or(Self::PageCache { drop_behind: true })),
        }
    }

    /// Returns the reader's name on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PageCache { .. } => "sendfile",
            Self::Direct { .. } => "direct",
        }
    }
}

/// The number of samples of a file's page cache, and the length of each: counting all pages of 8
/// GiB takes 40 ms (25 November 2026).
const LOOKS: u64 = 64;
const CHECKED_BYTES: Bytes = Bytes::mib(1);

/// Returns whether the page cache holds most of the file, or the file is too small to matter.
///
/// A kernel without cachestat(2) counts as cold: bypassing a warm cache costs one read from the
/// device, but filling memory with a cold file slows the whole host.
fn is_warm(source: &SourceFile) -> bool {
    let size = Bytes::new(source.metadata().len());
    let step = Bytes::new(size.get() / LOOKS);
    let is_cached = |look: &u64| cachestat::is_cached(source.file(), step * *look, step.min(CHECKED_BYTES));
    size <= SMALL || (0..LOOKS).filter(is_cached).count() as u64 * 2 >= LOOKS
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use longhaul_core::ranges::ByteRange;
    use longhaul_sys::write_back;

    use super::*;

    #[test]
    fn warm_file_is_sent_from_the_cache_and_a_cold_one_by_direct_io() {
        let dir = tempfile::tempdir_in(".").unwrap();
        let path = dir.path().join("f");
        let len = 32 << 20;
        std::fs::write(&path, vec![7; len as usize]).unwrap();
        let source = SourceFile::new(File::open(&path).unwrap(), path.clone()).unwrap();
        let known = cachestat::page_cache(source.file()).is_ok();
        let chosen = |choice| Reader::choose(choice, &source).unwrap();
        assert!(!known || chosen(ReaderChoice::Auto) == Reader::PageCache { drop_behind: false });

        File::open(&path).unwrap().sync_all().unwrap();
        write_back::finish_and_drop(source.file(), ByteRange::new(0, len)).unwrap();
        let dropped = cachestat::page_cache(source.file()).is_ok_and(|p| p.cached * 2 < Bytes::new(len));
        let cold = chosen(ReaderChoice::Auto);
        match direct_io::alignment(source.file()) {
            Some(alignment) => assert!(!dropped || cold == Reader::Direct { alignment }),
            None => assert!(!dropped || cold == Reader::PageCache { drop_behind: true }),
        }
        assert_eq!(chosen(ReaderChoice::Sendfile).name(), "sendfile");
    }
}
