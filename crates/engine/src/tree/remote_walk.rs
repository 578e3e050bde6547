//! Walks the directories of a server, depth first, with the next few listings requested in advance.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::listing::{ListedKind, check_name};
use url::Url;

use super::remote_tree::ListedFile;
use super::{WalkError, Walked};
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

impl OpenDirectory {
    /// Creates the error of a directory at `directory` that is this one, in which it lies.
    fn refused_below(&self, directory: &SafeUrl) -> WalkError {
        let above = SafeUrl::of(&self.url);
        let message = format!("refused {directory}: it is {above}, a directory that it lies in");
        WalkError::refused(directory, message)
    }
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
            listed.map_err(|failure| WalkError { what: shown.to_string(), failure })?;
        if let Some(root) = self.levels.first()
            && !(origin(&directory) == origin(&root.url) && below(&root.url, &directory).is_some())
        {
            let elsewhere = SafeUrl::of(&directory);
            let message =
                format!("refused {shown}: the server lists {elsewhere} instead, which is not below it");
            return Err(WalkError::refused(&shown, message));
        }
        if let Some(above) = self.levels.iter().find(|level| below(&level.url, &directory) == Some("")) {
            return Err(above.refused_below(&shown));
        }
        let (seen, ahead) = (HashSet::new(), VecDeque::new());
        self.levels.push(OpenDirectory { url: directory, path, unique, entries, seen, ahead });
        Ok(())
    }

    /// Creates a directory of the current level locally, and starts listing it.
    fn find(&mut self, found: UnlistedDirectory) -> Result<(), WalkError> {
        if self.levels.len() > MAX_LEVELS {
            let directory = SafeUrl::of(&found.url);
            let message = format!(
                "refused {directory}: it is more than {MAX_LEVELS} directories deep, perhaps by a link to a directory above it"
            );
            return Err(WalkError::refused(&directory, message));
        }
        let is_same = |level: &&OpenDirectory| found.unique.is_some() && level.unique == found.unique;
        if let Some(above) = self.levels.iter().find(is_same) {
            return Err(above.refused_below(&SafeUrl::of(&found.url)));
        }
        self.target.make_beneath(&found.path).map_err(|error| {
            let what = self.target.path_of(found.path.as_os_str()).display().to_string();
            let message = format!("cannot make the directory {what}: {error}");
            WalkError { what, failure: Failure::new(FailureKind::CannotCreate, message) }
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
            Some(Err(failure)) => {
                Some(Walked::Failed(WalkError { what: SafeUrl::of(&level.url).to_string(), failure }))
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
        let (base, seen) = (&level.url, &mut level.seen);
        let refused = |which: &str, why: &dyn Display| {
            let (directory, name) = (SafeUrl::of(base), entry.name.escape_ascii());
            let message = format!("refused {which}'{name}' in {directory}: {why}");
            Some(Walked::Failed(WalkError::refused(&directory, message)))
        };
        if let Err(error) = check_name(&entry.name) {
            return refused("", &error);
        }
        if is_partial(&entry.name) {
            return refused("", &"partial files have such names; rename it on the server");
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::hash(&entry.name).as_bytes()[..16]);
        if !seen.insert(hash) {
            return refused("a second ", &"another entry has the same name");
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
                let message = format!(
                    "found no file: {unmatched} links to no entry of it; fetch the URLs of files by -i FILE"
                );
                return Some(Walked::Failed(WalkError::refused(&unmatched, message)));
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
