//! Walks the directories of a server, depth first, with the next few listings requested in advance.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use longhaul_core::failure::Failure;
use longhaul_core::proto::listing::{ListedKind, check_name};
use url::Url;

use super::Walked;
use super::remote_tree::ListedFile;
use super::walk_error::WalkError;
use crate::cancel::Cancel;
use crate::sink::directory::Directory;
use crate::sink::part_names::is_partial;
use crate::source::http::SafeUrl;
use crate::source::listing::{Entries, OpenListing, RemoteDirectories, RemoteEntry, below};
use crate::source::origin;
use crate::threads::named;

/// The maximum depth. It ends loops by links to a parent that the server does not reveal. With
/// 4,096 bytes, the longest path of Linux, it leaves 40 bytes for each name.
const MAX_LEVELS: usize = 100;

/// The walk of a tree. Checks names, and creates each local directory before returning its entries.
pub struct RemoteWalk {
    lister: Arc<dyn RemoteDirectories>,
    target: Arc<Directory>,
    cancel: Cancel,
    /// The root, until it is listed.
    start: Option<Url>,
    /// The directories from the root to the current one.
    levels: Vec<OpenDirectory>,
    /// Whether nothing was returned yet.
    is_empty: bool,
}

/// An open directory.
struct OpenDirectory {
    url: Url,
    path: PathBuf,
    unique: Option<String>,
    entries: Entries,
    /// Hashes of the names so far, 16 bytes each: a directory may have millions of entries.
    seen: HashSet<[u8; 16]>,
    /// The directories of this level whose listings are requested, in order.
    ahead: VecDeque<(UnlistedDirectory, Listing)>,
}

/// The future result of a listing on another thread.
type Listing = Receiver<Result<OpenListing, Failure>>;

/// A directory whose listing was requested.
struct UnlistedDirectory {
    url: Url,
    path: PathBuf,
    unique: Option<String>,
}

impl RemoteWalk {
    pub(super) fn new(
        lister: Arc<dyn RemoteDirectories>,
        url: &Url,
        target: Arc<Directory>,
        cancel: Cancel,
    ) -> Self {
        Self { lister, target, cancel, start: Some(url.clone()), levels: Vec::new(), is_empty: true }
    }

    /// Starts listing a directory on a thread; without a thread, lists it synchronously.
    fn list_ahead(&self, directory: &Url) -> Listing {
        let (done, listing) = sync_channel(1);
        let (lister, url, cancel) = (Arc::clone(&self.lister), directory.clone(), self.cancel.clone());
        let list = move || {
            // Fails only after the end of the walk.
            let _ = done.send(lister.list(&url, &cancel));
        };
        match named("lister").spawn(list.clone()) {
            Ok(_) => {}
            Err(_) => list(),
        }
        listing
    }

    /// Continues with the entries of a directory.
    fn enter(&mut self, found: UnlistedDirectory, listing: &Listing) -> Result<(), WalkError> {
        let UnlistedDirectory { url, path, unique } = found;
        let shown = SafeUrl::of(&url);
        let listed =
            listing.recv().unwrap_or_else(|_| Err(Failure::panicked("a thread that lists a directory")));
        let OpenListing { directory, entries } =
            listed.map_err(|source| WalkError::Listing { directory: shown.clone(), source })?;
        if let Some(root) = self.levels.first()
            && !(origin(&directory) == origin(&root.url) && below(&root.url, &directory).is_some())
        {
            return Err(WalkError::Elsewhere { directory: shown, elsewhere: SafeUrl::of(&directory) });
        }
        if let Some(above) = self.levels.iter().find(|level| below(&level.url, &directory) == Some("")) {
            return Err(WalkError::Loop { directory: shown, above: SafeUrl::of(&above.url) });
        }
        let (seen, ahead) = (HashSet::new(), VecDeque::new());
        self.levels.push(OpenDirectory { url: directory, path, unique, entries, seen, ahead });
        Ok(())
    }

    /// Creates a directory of the current level locally, and starts listing it.
    fn find(&mut self, found: UnlistedDirectory) -> Result<(), WalkError> {
        if self.levels.len() > MAX_LEVELS {
            return Err(WalkError::Deep { directory: SafeUrl::of(&found.url), most: MAX_LEVELS });
        }
        let is_same = |level: &&OpenDirectory| found.unique.is_some() && level.unique == found.unique;
        if let Some(above) = self.levels.iter().find(is_same) {
            return Err(WalkError::Loop {
                directory: SafeUrl::of(&found.url),
                above: SafeUrl::of(&above.url),
            });
        }
        self.target.make_beneath(&found.path).map_err(|source| {
            let path = self.target.path_of(found.path.as_os_str());
            WalkError::MakeDirectory { path, source }
        })?;
        let listing = self.list_ahead(&found.url);
        if let Some(level) = self.levels.last_mut() {
            level.ahead.push_back((found, listing));
        }
        Ok(())
    }

    /// Returns the next step of the current level: an entry, or a directory listed in advance.
    fn step(&mut self) -> Option<Walked<ListedFile>> {
        // The listings of the levels above count too, except one, which the walk needs to continue.
        let under_way: usize = self.levels.iter().map(|level| level.ahead.len()).sum();
        let level = self.levels.last_mut()?;
        let may_list = level.ahead.is_empty() || under_way < self.lister.at_once();
        let entry = if may_list { level.entries.next() } else { None };
        match entry {
            Some(Ok(found)) => self.take(found),
            Some(Err(source)) => {
                Some(Walked::Failed(WalkError::Listing { directory: SafeUrl::of(&level.url), source }))
            }
            None => match level.ahead.pop_front() {
                Some((found, listing)) => self.enter(found, &listing).err().map(Walked::Failed),
                None => {
                    self.levels.pop();
                    None
                }
            },
        }
    }

    /// Checks an entry of the current level; `None` for a directory, which is listed.
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
            return Some(Walked::Failed(WalkError::Twice {
                directory: SafeUrl::of(&level.url),
                name: name(),
            }));
        }
        let path = level.path.join(OsStr::from_bytes(&entry.name));
        match entry.kind {
            ListedKind::Other => Some(Walked::Skipped {
                what: SafeUrl::of(&url).to_string(),
                why: "it is neither a file nor a directory",
            }),
            ListedKind::File => {
                Some(Walked::File(ListedFile { url, path, size: entry.size, modified: entry.modified }))
            }
            ListedKind::Directory => {
                self.find(UnlistedDirectory { url, path, unique: entry.unique }).err().map(Walked::Failed)
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
                let listing = self.list_ahead(&url);
                self.enter(UnlistedDirectory { url, path: PathBuf::new(), unique: None }, &listing)
                    .err()
                    .map(Walked::Failed)
            } else if self.levels.is_empty() {
                let unmatched = self.lister.unmatched().filter(|_| std::mem::take(&mut self.is_empty))?;
                return Some(Walked::Failed(WalkError::NothingBelow { directory: unmatched }));
            } else {
                self.step()
            };
            // A cancelled walk reports only the cancellation, not the errors that follow from it.
            if walked.is_some() && !self.cancel.is_cancelled() {
                self.is_empty = false;
                return walked;
            }
        }
    }
}
