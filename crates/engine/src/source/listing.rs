//! Directories of a server: one trait, which a protocol implements beside `Source`.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use longhaul_core::proto::listing::ListedEntry;
use longhaul_core::units::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use url::Url;

use crate::cancel::Cancel;
use crate::sink::directory::Directory;
use crate::source::http::ClientConfig;
use crate::transfer::error::SourceError;

/// Lists and makes the directories of one server. Several threads may use it at once.
pub(crate) trait RemoteDirectories: Send + Sync {
    /// Requests a directory's entries.
    ///
    /// # Errors
    /// [`SourceError`] after the retries that the user allows.
    fn list(&self, directory: &Url, cancel: &Cancel) -> Result<OpenListing, SourceError>;

    /// Asks for the size and the time of a file, where a listing has not both.
    ///
    /// # Errors
    /// [`SourceError`] after the retries that the user allows.
    fn look(&self, file: &Url, cancel: &Cancel) -> Result<FileFacts, SourceError>;

    /// Makes a directory, and those above it that are missing; returns whether it is new.
    ///
    /// # Errors
    /// [`SourceError`] after the retries that the user allows.
    fn make(&self, directory: &Url, cancel: &Cancel) -> Result<bool, SourceError>;

    /// Returns whether the server gives an uploaded file the time of modification that it has here.
    fn keeps_times(&self, _directory: &Url, _cancel: &Cancel) -> bool {
        false
    }

    /// Returns how many directories of one level are to be listed at once.
    fn at_once(&self) -> usize;
}

/// What became of a request to make one directory.
pub(crate) enum MadeDirectory {
    /// It was made.
    New,
    /// It was there.
    Exists,
    /// It was refused by this error, perhaps as the directory above is missing.
    LacksParent(SourceError),
}

/// Makes `directory` by `make`, and those above it that are missing; returns whether it is new.
///
/// Each directory is requested twice at most: before those above it, and once they are there, whether this client has made them
/// or another one meanwhile.
///
/// # Errors
/// That of the first directory that is refused although the one above it is there.
pub(crate) fn make_with_parents(
    directory: &Url,
    mut make: impl FnMut(&Url) -> Result<MadeDirectory, SourceError>,
) -> Result<bool, SourceError> {
    let mut missing = vec![directory.clone()];
    let mut refusal = match make(directory)? {
        MadeDirectory::New => return Ok(true),
        MadeDirectory::Exists => return Ok(false),
        MadeDirectory::LacksParent(refusal) => refusal,
    };
    while let Some(above) = missing.last().and_then(parent) {
        match make(&above)? {
            MadeDirectory::LacksParent(of_above) => {
                refusal = of_above;
                missing.push(above);
            }
            MadeDirectory::New | MadeDirectory::Exists => {
                return make_below(&missing, make);
            }
        }
    }
    Err(refusal)
}

/// Makes the directories of `missing`, the uppermost last, each of which lies in the next one.
fn make_below(
    missing: &[Url],
    mut make: impl FnMut(&Url) -> Result<MadeDirectory, SourceError>,
) -> Result<bool, SourceError> {
    let mut is_new = false;
    for directory in missing.iter().rev() {
        is_new = match make(directory)? {
            MadeDirectory::New => true,
            MadeDirectory::Exists => false,
            MadeDirectory::LacksParent(refusal) => return Err(refusal),
        };
    }
    Ok(is_new)
}

/// Returns the directory above; `None` for the root.
fn parent(url: &Url) -> Option<Url> {
    let above = url.join("..").ok()?;
    (above.path() != url.path()).then_some(above)
}

/// How directories are listed.
#[derive(Clone)]
pub(crate) struct ListerOptions {
    pub(crate) config: ClientConfig,
    /// How many failures in a row are allowed.
    pub(crate) retries: u32,
    /// How long a server may send nothing.
    pub(crate) stall: Duration,
    /// Where long listings are kept until they are read.
    pub(crate) spool: Arc<Directory>,
}

/// A directory whose entries are being read.
pub(crate) struct OpenListing {
    /// The directory's URL after redirects; it ends in a slash.
    pub(crate) directory: Url,
    pub(crate) entries: Entries,
}

/// The entries of a directory, read as they are taken; an error is of one entry or of all that would follow. Nothing of a connection is
/// held meanwhile.
pub(crate) type Entries = Box<dyn Iterator<Item = Result<RemoteEntry, SourceError>> + Send>;

/// An entry and its URL. The name is not checked.
pub(crate) struct RemoteEntry {
    pub(crate) entry: ListedEntry,
    pub(crate) url: Url,
}

/// What tells whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileFacts {
    pub(crate) size: Option<Bytes>,
    pub(crate) modified: Option<SystemTime>,
}

/// All but the unreserved characters of a path's segment (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the URL of an entry of `directory`, whose path ends in a slash.
pub(crate) fn child_url(directory: &Url, name: &[u8], is_directory: bool) -> Url {
    let mut url = directory.clone();
    let slash = if is_directory { "/" } else { "" };
    url.set_path(&format!("{}{}{slash}", directory.path(), percent_encode(name, ESCAPED)));
    url.set_query(None);
    url
}

/// Keeps what a server has sent until it is parsed: in memory, and in a file without a name once it is long.
pub(crate) struct Spool {
    directory: Arc<Directory>,
    memory: Vec<u8>,
    file: Option<File>,
    length: Bytes,
}

/// Listings up to this length stay in memory: some 10,000 entries.
const IN_MEMORY: usize = 1 << 20;

impl Spool {
    /// Keeps long content in the file system of `directory`.
    pub(crate) fn new(directory: &Arc<Directory>) -> Self {
        Self { directory: Arc::clone(directory), memory: Vec::new(), file: None, length: Bytes::ZERO }
    }

    /// Returns how much it keeps.
    pub(crate) fn length(&self) -> Bytes {
        self.length
    }

    /// Adds bytes at the end.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += Bytes::new(bytes.len() as u64);
        if let Some(file) = &mut self.file {
            return file.write_all(bytes);
        }
        self.memory.extend_from_slice(bytes);
        if self.memory.len() > IN_MEMORY {
            let mut file = self.directory.temporary()?;
            file.write_all(&std::mem::take(&mut self.memory))?;
            self.file = Some(file);
        }
        Ok(())
    }

    /// Returns all of it, to be read from its start.
    ///
    /// # Errors
    /// What the kernel says of the file.
    pub(crate) fn into_reader(self) -> io::Result<BufReader<Box<dyn Read + Send>>> {
        let reader: Box<dyn Read + Send> = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Box::new(file)
            }
            None => Box::new(Cursor::new(self.memory)),
        };
        Ok(BufReader::with_capacity(64 << 10, reader))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn long_content_is_kept_in_a_file_without_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(Path::new(dir.path())).unwrap());
        let content: Vec<u8> = (0..3 * IN_MEMORY).map(|n| n as u8 ^ (n >> 9) as u8).collect();
        for length in [0, 5, IN_MEMORY, IN_MEMORY + 1, content.len()] {
            let mut spool = Spool::new(&directory);
            content[..length].chunks(70_000).for_each(|piece| spool.add(piece).unwrap());
            assert_eq!(spool.file.is_some(), length > IN_MEMORY);
            assert_eq!(spool.length(), Bytes::new(length as u64));
            let mut read = Vec::new();
            spool.into_reader().unwrap().read_to_end(&mut read).unwrap();
            assert!(read == content[..length]);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// Answers by the set of directories that are there, whose parents must be.
    fn made(there: &mut HashSet<String>, directory: &str) -> (Result<bool, SourceError>, Vec<String>) {
        let mut requested = Vec::new();
        let result = make_with_parents(&directory.parse().unwrap(), |url| {
            requested.push(url.path().to_owned());
            let refused = || SourceError::stalled(url.path(), Bytes::new(1), Duration::ZERO);
            Ok(match parent(url) {
                _ if there.contains(url.path()) => MadeDirectory::Exists,
                Some(above) if !there.contains(above.path()) => MadeDirectory::LacksParent(refused()),
                _ => {
                    there.insert(url.path().to_owned());
                    MadeDirectory::New
                }
            })
        });
        (result, requested)
    }

    #[test]
    fn missing_parents_are_made_once_each() {
        let mut there = HashSet::from(["/".to_owned()]);
        let (result, requested) = made(&mut there, "http://h/a/b/c/");
        assert!(result.unwrap());
        assert_eq!(requested, ["/a/b/c/", "/a/b/", "/a/", "/a/b/", "/a/b/c/"]);
        let (result, requested) = made(&mut there, "http://h/a/b/c/");
        assert!(!result.unwrap() && requested.len() == 1);
        // No root, as where the login has no rights: each is requested once.
        let (result, requested) = made(&mut HashSet::new(), "http://h/a/b/");
        assert!(result.unwrap() && requested == ["/a/b/", "/a/", "/", "/a/", "/a/b/"]);
    }

    #[test]
    fn server_that_always_lacks_a_parent_is_asked_twice() {
        let mut requested = 0;
        let result = make_with_parents(&"http://h/a/b/".parse().unwrap(), |url| {
            requested += 1;
            Ok(match url.path() {
                "/a/b/" => MadeDirectory::LacksParent(SourceError::interrupted()),
                _ => MadeDirectory::New,
            })
        });
        assert!(result.is_err() && requested == 3);
    }

    #[test]
    fn directory_that_another_client_makes_meanwhile_is_no_error() {
        let (mut parents, mut children) = (0, 0);
        let result = make_with_parents(&"http://h/a/b/".parse().unwrap(), |url| {
            let (count, missing) =
                if url.path() == "/a/" { (&mut parents, false) } else { (&mut children, true) };
            *count += 1;
            Ok(match *count {
                1 if missing => MadeDirectory::LacksParent(SourceError::interrupted()),
                // The other client was faster with the parent.
                _ => {
                    if missing {
                        MadeDirectory::New
                    } else {
                        MadeDirectory::Exists
                    }
                }
            })
        });
        assert!(result.unwrap() && (parents, children) == (1, 2));
    }

    #[test]
    fn child_is_named_byte_for_byte() {
        let directory: Url = "http://ann@h/d%20e/?key=1".parse().unwrap();
        assert_eq!(
            child_url(&directory, b"a/b?#%\xff", false).as_str(),
            "http://ann@h/d%20e/a%2Fb%3F%23%25%FF"
        );
        assert_eq!(child_url(&directory, b"sub", true).as_str(), "http://ann@h/d%20e/sub/");
    }
}
