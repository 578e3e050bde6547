//! The choice of a writer: Direct I/O, or what takes its place where the file system does not permit it.

use std::fs::File;
use std::io;

use longhaul_core::units::Bytes;

use super::Writer;
use super::buffered::Buffered;
use super::direct::Direct;
use super::mmap::Mmap;

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
        WriterChoice::Mmap => Ok(Box::new(Mmap::new(file, size)?)),
        WriterChoice::Buffered => Ok(Box::new(Buffered::new(file)?)),
        WriterChoice::Auto => match Direct::where_known(file) {
            Ok(direct) => Ok(Box::new(direct)),
            Err(_) => Ok(Box::new(Buffered::new(file)?)),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::os::unix::fs::FileExt;

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
