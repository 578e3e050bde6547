//! Directories of a server: a trait, implemented by each protocol beside `Source`.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::listing::ListedEntry;
use longhaul_core::units::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use url::Url;

use crate::cancel::Cancel;
use crate::connect::Received;
use crate::retry_loop::Retries;
use crate::sink::directory::Directory;
use crate::source::http::{ClientConfig, SafeUrl};

/// Lists and creates directories of one server. Supports calls from several threads.
pub(crate) trait RemoteDirectories: Send + Sync {
    /// Lists a directory's entries.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    fn list(&self, directory: &Url, cancel: &Cancel) -> Result<OpenListing, Failure>;

    /// Requests the size and time of a file, if the listing lacks one of them.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    fn look(&self, file: &Url, cancel: &Cancel) -> Result<FileFacts, Failure>;

    /// Creates a directory and its missing parents; returns whether it is new.
    ///
    /// # Errors
    /// [`Failure`] after the user's number of retries.
    fn make(&self, directory: &Url, cancel: &Cancel) -> Result<bool, Failure>;

    /// Returns whether the server sets an uploaded file's modification time.
    fn keeps_times(&self, _directory: &Url, _cancel: &Cancel) -> bool {
        false
    }

    /// Returns the number of directories of one level to list at once.
    fn at_once(&self) -> usize;

    /// Returns a listed directory, if any, that has links, but none to an entry of it.
    fn unmatched(&self) -> Option<SafeUrl> {
        None
    }
}

/// The outcome of a request to create one directory.
pub(crate) enum MadeDirectory {
    /// The directory was created.
    New,
    /// The directory existed.
    Exists,
    /// The request was refused by this error, possibly because the parent is missing.
    LacksParent(Failure),
}

/// Creates `directory` and its missing parents by `make`; returns whether it is new.
///
/// Requests each directory at most twice: before its parents, and again once they exist, whether
/// created by this client or by another.
///
/// # Errors
/// The error of the first directory that is refused although its parent exists.
pub(crate) fn make_with_parents(
    directory: &Url,
    make: &mut dyn FnMut(&Url) -> Result<MadeDirectory, Failure>,
) -> Result<bool, Failure> {
    let (mut at, mut below, mut has_made) = (directory.clone(), Vec::new(), false);
    loop {
        match make(&at)? {
            MadeDirectory::LacksParent(refusal) => match parent(&at).filter(|_| !has_made) {
                Some(above) => below.push(std::mem::replace(&mut at, above)),
                None => return Err(refusal),
            },
            made => match below.pop() {
                Some(next) => (at, has_made) = (next, true),
                None => return Ok(matches!(made, MadeDirectory::New)),
            },
        }
    }
}

/// Returns the parent directory; `None` for the root.
fn parent(url: &Url) -> Option<Url> {
    let above = url.join("..").ok()?;
    (above.path() != url.path()).then_some(above)
}

/// The settings of a lister.
#[derive(Clone)]
pub(crate) struct ListerOptions {
    pub(crate) config: ClientConfig,
    /// The maximum number of consecutive failures.
    pub(crate) retries: u32,
    /// The timeout for a server that sends nothing.
    pub(crate) stall: Duration,
    /// The directory in whose file system long listings are spooled.
    pub(crate) spool: Arc<Directory>,
}

/// The maximum size of a listing, about 8 million entries.
const MAX_LISTING: Bytes = Bytes::gib(1);

impl ListerOptions {
    /// Repeats `attempt` at what `shown` names, if the server was only slow or busy.
    ///
    /// # Errors
    /// The last error, or that of a cancellation.
    pub(crate) fn retrying<T>(
        &self,
        shown: &SafeUrl,
        cancel: &Cancel,
        mut attempt: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let emit = |event: &_| tracing::debug!(?event, "asking {shown}");
        let retries = Retries { most: self.retries, stream: 0, emit: &emit, rest: cancel };
        retries.repeat(&mut (), |(), _| attempt(), |(), error| error.first_retry())
    }

    /// Receives a complete listing, so that no connection idles during the transfer of its files.
    /// `read` receives the number of bytes received so far.
    ///
    /// # Errors
    /// That of `read`. The inner error is of the listing or of this host, or that the server has
    /// stalled.
    pub(crate) fn receive<E>(
        &self,
        shown: &str,
        mut read: impl FnMut(&mut [u8], Bytes) -> Result<Received, E>,
    ) -> Result<Result<Spool, Failure>, E> {
        let failed = |kind, message| Ok(Err(Failure::new(kind, message)));
        let (mut spool, mut buffer, mut last) = (Spool::new(&self.spool), vec![0; 64 << 10], Instant::now());
        loop {
            match read(&mut buffer, spool.length)? {
                Received::Data(length) => {
                    last = Instant::now();
                    if let Err(error) = spool.add(&buffer[..length]) {
                        let message = format!("cannot keep the listing of {shown}: {error}");
                        return failed(FailureKind::Disk, message);
                    }
                }
                Received::Idle if last.elapsed() > self.stall => {
                    return Ok(Err(Failure::stalled(shown, Bytes::new(1), self.stall)));
                }
                Received::Idle => {}
                Received::End { .. } => return Ok(Ok(spool)),
            }
            if spool.length > MAX_LISTING {
                let message = format!("the listing of {shown} is longer than {MAX_LISTING}");
                return failed(FailureKind::Data, message);
            }
        }
    }
}

/// An open directory listing.
pub(crate) struct OpenListing {
    /// The directory's URL after redirects, with a trailing slash.
    pub(crate) directory: Url,
    pub(crate) entries: Entries,
}

/// The entries of a directory, read lazily without holding a connection; an error concerns one
/// entry or all that follow.
pub(crate) type Entries = Box<dyn Iterator<Item = Result<RemoteEntry, Failure>> + Send>;

/// An entry and its URL. The name is not checked.
pub(crate) struct RemoteEntry {
    pub(crate) entry: ListedEntry,
    pub(crate) url: Url,
}

/// The properties by which changes of a file are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FileFacts {
    pub(crate) size: Option<Bytes>,
    pub(crate) modified: Option<SystemTime>,
}

/// Everything but the unreserved characters of a path segment (RFC 3986, section 2.3).
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the URL of an entry of `directory`, whose path ends in a slash.
pub(crate) fn child_url(directory: &Url, name: &[u8], is_directory: bool) -> Url {
    let mut url = directory.clone();
    let slash = if is_directory { "/" } else { "" };
    url.set_path(&format!("{}{}{slash}", directory.path(), percent_encode(name, ESCAPED)));
    url.set_query(None);
    url
}

/// Returns the part of a URL's path below that of a directory, which ends in a slash; empty for the
/// directory itself.
///
/// Names are compared decoded: a server may write `/%7Eu/` as `/~u/`, and `%c3` as `%C3`.
pub(crate) fn below<'u>(directory: &Url, url: &'u Url) -> Option<&'u str> {
    directory.path().split_terminator('/').try_fold(url.path(), |path, name| {
        let (first, rest) = path.split_once('/')?;
        percent_decode_str(first).eq(percent_decode_str(name)).then_some(rest)
    })
}

/// Stores received bytes until they are parsed: in memory, or in an unnamed file if long.
pub(crate) struct Spool {
    directory: Arc<Directory>,
    memory: Vec<u8>,
    file: Option<File>,
    length: Bytes,
}

/// The maximum size in memory: about 10,000 entries.
const IN_MEMORY: usize = 1 << 20;

impl Spool {
    /// Creates a spool whose file is in the file system of `directory`.
    pub(crate) fn new(directory: &Arc<Directory>) -> Self {
        Self { directory: Arc::clone(directory), memory: Vec::new(), file: None, length: Bytes::ZERO }
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The kernel's error on the file.
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

    /// Returns a reader from the start.
    ///
    /// # Errors
    /// The kernel's error on the file.
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
            assert_eq!(spool.length, Bytes::new(length as u64));
            let mut read = Vec::new();
            spool.into_reader().unwrap().read_to_end(&mut read).unwrap();
            assert!(read == content[..length]);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn missing_parents_are_created_once_each() {
        // The answer to each request: a new directory, an existing one, or a missing parent.
        for (directory, answers, is_new, requested) in [
            ("/a/b/c/", "MMNNN", Some(true), &["/a/b/c/", "/a/b/", "/a/", "/a/b/", "/a/b/c/"][..]),
            ("/a/b/c/", "E", Some(false), &["/a/b/c/"]),
            // No root, as for a login without rights.
            ("/a/b/", "MMNNN", Some(true), &["/a/b/", "/a/", "/", "/a/", "/a/b/"]),
            // Another client has created the parent first.
            ("/a/b/", "MEN", Some(true), &["/a/b/", "/a/", "/a/b/"]),
            ("/a/b/", "MNM", None, &["/a/b/", "/a/", "/a/b/"]),
        ] {
            let (mut paths, mut answers) = (Vec::new(), answers.chars());
            let url = format!("http://h{directory}").parse().unwrap();
            let result = make_with_parents(&url, &mut |url| {
                paths.push(url.path().to_owned());
                Ok(match answers.next().unwrap() {
                    'N' => MadeDirectory::New,
                    'E' => MadeDirectory::Exists,
                    _ => MadeDirectory::LacksParent(Failure::interrupted()),
                })
            });
            assert_eq!(result.ok(), is_new, "{directory}");
            assert_eq!(paths, requested, "{directory}");
        }
    }

    #[test]
    fn paths_are_compared_decoded_and_by_name() {
        for (directory, path, expected) in [
            ("/", "/a/b", Some("a/b")),
            ("/%7Eu/", "/~u/a%2Fb", Some("a%2Fb")),
            ("/~u/", "/%7eu/", Some("")),
            ("/%5B1%5D/%c3/", "/[1]/%C3/x", Some("x")),
            ("/~u/", "/~u", None),
            ("/~u/", "/~u2/x", None),
            ("/a/b/", "/a%2Fb/x", None),
            ("/a%2fb/", "/a/b/x", None),
        ] {
            let url = |path: &str| format!("http://h{path}").parse::<Url>().unwrap();
            assert_eq!(below(&url(directory), &url(path)), expected, "{directory} {path}");
        }
    }

    #[test]
    fn child_url_encodes_every_byte() {
        let directory: Url = "http://ann@h/d%20e/?key=1".parse().unwrap();
        let child = |name, is_directory| String::from(child_url(&directory, name, is_directory));
        assert_eq!(child(b"a/b?#%\xff", false), "http://ann@h/d%20e/a%2Fb%3F%23%25%FF");
        assert_eq!(child(b"sub", true), "http://ann@h/d%20e/sub/");
    }
}
