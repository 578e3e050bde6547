//! Walks the directories of a server: depth first, with the listings of one path open.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::proto::listing::{ListedKind, check_name};
use url::Url;

use super::remote_tree::ListedFile;
use super::walk_error::WalkError;
use super::Walked;
use crate::cancel::Cancel;
use crate::sink::directory::Directory;
use crate::sink::part_names::is_partial;
use crate::source::http::SafeUrl;
use crate::source::listing::{DirectoryLister, Entries, OpenListing, RemoteEntry};

/// The most directories below each other: links to a directory above end here where the server does not show them. The longest path of
/// Linux, 4,096 bytes, has room for names of 40 bytes then.
const MOST_LEVELS: usize = 100;

/// The walk of a tree. Names are checked, and directories are made, before what they hold is returned.
pub struct RemoteWalk {
    lister: Arc<dyn DirectoryLister>,
    target: Arc<Directory>,
    cancel: Cancel,
    /// The root, until it is listed.
    start: Option<Url>,
    /// The directories from the root down to the one that is being read.
    levels: Vec<Level>,
}

/// A directory that is being read.
struct Level {
    url: Url,
    path: PathBuf,
    unique: Option<String>,
    entries: Entries,
    /// Hashes of the names so far: 16 bytes each, as a directory may have millions.
    seen: HashSet<[u8; 16]>,
}

/// A directory that is to be listed.
struct Found {
    url: Url,
    path: PathBuf,
    unique: Option<String>,
}

impl RemoteWalk {
    pub(super) fn new(
        lister: Arc<dyn DirectoryLister>,
        url: &Url,
        target: Arc<Directory>,
        cancel: Cancel,
    ) -> Self {
        Self { lister, target, cancel, start: Some(url.clone()), levels: Vec::new() }
    }

    /// Lists a directory, and goes on with what it holds.
    fn enter(&mut self, found: Found) -> Result<(), WalkError> {
        let Found { url, path, unique } = found;
        let shown = SafeUrl::of(&url);
        let listed = self.lister.list(&url, &self.cancel);
        let OpenListing { directory, entries } =
            listed.map_err(|source| WalkError::Listing { directory: shown.clone(), source })?;
        if let Some(root) = self.levels.first()
            && !(directory.origin() == root.url.origin() && directory.path().starts_with(root.url.path()))
        {
            return Err(WalkError::Elsewhere { directory: shown, elsewhere: SafeUrl::of(&directory) });
        }
        let is_above = |level: &&Level| {
            level.url.path() == directory.path() || (unique.is_some() && level.unique == unique)
        };
        if let Some(above) = self.levels.iter().find(is_above) {
            return Err(WalkError::Loop { directory: shown, above: SafeUrl::of(&above.url) });
        }
        self.levels.push(Level { url: directory, path, unique, entries, seen: HashSet::new() });
        Ok(())
    }

    /// Checks an entry of the last level; `None` for a directory, which is entered.
    fn take(&mut self, found: RemoteEntry) -> Option<Walked<ListedFile>> {
        let RemoteEntry { entry, url } = found;
        let level = self.levels.last_mut()?;
        let directory = || SafeUrl::of(&level.url);
        let name = || entry.name.escape_ascii().to_string();
        if let Err(source) = check_name(&entry.name) {
            return Some(Walked::Failed(WalkError::Name { directory: directory(), name: name(), source }));
        }
        if is_partial(&entry.name) {
            return Some(Walked::Failed(WalkError::PartialName { directory: directory(), name: name() }));
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(&entry.name).as_bytes()[..16]);
        if !level.seen.insert(hash) {
            return Some(Walked::Failed(WalkError::Twice { directory: SafeUrl::of(&level.url), name: name() }));
        }
        let path = level.path.join(OsStr::from_bytes(&entry.name));
        match entry.kind {
            ListedKind::Other => {
                Some(Walked::Skipped { what: SafeUrl::of(&url).to_string(), why: "it is neither a file nor a directory" })
            }
            ListedKind::File => {
                Some(Walked::File(ListedFile { url, path, size: entry.size, modified: entry.modified }))
            }
            ListedKind::Directory if self.levels.len() > MOST_LEVELS => {
                Some(Walked::Failed(WalkError::Deep { directory: SafeUrl::of(&url), most: MOST_LEVELS }))
            }
            ListedKind::Directory => {
                let made = self.target.make_beneath(&path).map_err(|source| WalkError::MakeDirectory {
                    path: self.target.path_of(path.as_os_str()),
                    source,
                });
                made.and_then(|()| self.enter(Found { url, path, unique: entry.unique })).err().map(Walked::Failed)
            }
        }
    }
}

impl Iterator for RemoteWalk {
    type Item = Walked<ListedFile>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.cancel.is_cancelled() {
                return None;
            }
            let walked = if let Some(url) = self.start.take() {
                self.enter(Found { url, path: PathBuf::new(), unique: None }).err().map(Walked::Failed)
            } else {
                match self.levels.last_mut()?.entries.next() {
                    Some(Ok(found)) => self.take(found),
                    Some(Err(source)) => self.levels.pop().map(|level| {
                        Walked::Failed(WalkError::Listing { directory: SafeUrl::of(&level.url), source })
                    }),
                    None => {
                        self.levels.pop();
                        None
                    }
                }
            };
            // What fails by the interruption is no failure of its own.
            if walked.is_some() && !self.cancel.is_cancelled() {
                return walked;
            }
        }
    }
}
