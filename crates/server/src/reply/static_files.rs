//! Answers GET and HEAD with the files and directories below the root.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::proto::http::{ReplyHead, RequestHead, TargetPath};
use longhaul_engine::sink::part_names::is_partial;
use rustix::io::Errno;
use tokio::time::sleep;

use crate::admission::shares::{Requester, Share, Shares};
use crate::connection::routes::ReadRequest;
use crate::paths::beneath_root::{Found, Root};
use crate::paths::disks::{Disk, DiskError, Disks};
use crate::reply::Reply;
use crate::reply::directory_entries::{
    DirectoryListing, ListedDirectory, ListingOptions, ListingPage, SortOrder,
};
use crate::reply::directory_json;
use crate::reply::directory_page;
use crate::reply::file_reply::{FileOffer, file_reply};
use crate::reply::piece_digests::{HashingTurn, PieceDigests, asks_for_digests};

/// The served tree, and what of it is shown.
pub(crate) struct StaticFiles {
    pub(crate) root: Arc<Root>,
    /// Names that begin with a dot are served too.
    pub(crate) hidden: bool,
    /// Clients may have uploaded the files.
    pub(crate) untrusted: bool,
    /// The most entries on a directory's page.
    pub(crate) max_entries: usize,
    /// Listings being made or sent.
    pub(crate) listings: Shares<Requester>,
    /// `None` where no digests are offered.
    pub(crate) piece_digests: Option<PieceDigests>,
    pub(crate) disks: Disks,
}

impl StaticFiles {
    /// Answers a GET or HEAD; operations on a file system that hangs end in 503.
    ///
    /// Waits for a free descriptor for [`EXHAUSTION_TIMEOUT`]: the connection itself may have taken
    /// the last one. Waits once until the entity tag of a file that has just been written is
    /// strong: bytes under a weak tag cannot be combined with those of later replies.
    pub(crate) async fn answer(self: Arc<Self>, read: ReadRequest) -> Reply {
        let turn = match &self.piece_digests {
            Some(digests) if asks_for_digests(&read.path) => digests.turn(&read.requester).await.map(Some),
            _ => Ok(None),
        };
        let (turn, _watch) = match turn {
            Ok(turn) => turn.unzip(),
            Err(busy) => return busy,
        };
        let asked = Arc::new((read, turn));
        let read = |disk: Disk, follow: bool| {
            let (files, asked, listed) = (Arc::clone(&self), Arc::clone(&asked), disk.clone());
            async move {
                let found = disk.run(move || files.find(&asked, SystemTime::now(), &listed, follow)).await;
                found.map(|reply| reply.map(|reply| reply.on(disk)))
            }
        };
        let ReadRequest { path, head: request, .. } = &asked.0;
        let disk = self.disks.of(path.names());
        if disk.is_local()
            && let Some(reply) = self.answer_cached(path, request).await
        {
            return reply.on(disk);
        }
        let (began, mut has_waited) = (Instant::now(), false);
        loop {
            let reply = match read(disk.clone(), false).await {
                Ok(Err(error)) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                    read(self.disks.links().clone(), true).await
                }
                reply => reply,
            };
            match reply {
                Ok(Ok(mut reply)) => match reply.settles_in.filter(|_| !has_waited) {
                    Some(time) => {
                        has_waited = true;
                        if let Some(disk) = reply.disk.take() {
                            disk.close(reply);
                        }
                        sleep(time).await;
                    }
                    None => return reply,
                },
                Ok(Err(error)) if is_exhaustion(&error) && began.elapsed() < EXHAUSTION_TIMEOUT => {
                    sleep(EXHAUSTION_RETRY).await;
                }
                Ok(Err(error)) => return error_reply(&error, request),
                Err(error) => {
                    tracing::warn!(target = request.target(), %error, "a file could not be opened");
                    return Reply::disk_error(&error);
                }
            }
        }
    }

    /// Prepares to serve `path` as a server of default settings does.
    #[cfg(test)]
    pub(crate) fn of_test(path: &std::path::Path) -> Self {
        let limits = &crate::Limits::default();
        let (root, disks) = (Arc::new(Root::open(path).unwrap()), Disks::new(path, limits));
        let (piece_digests, listings) = (None, Shares::new(0, 1));
        Self {
            root,
            hidden: false,
            untrusted: true,
            max_entries: limits.listings.entries,
            listings,
            piece_digests,
            disks,
        }
    }

    /// Returns the file system of `names`; the threads for links where the path leads through one.
    pub(crate) async fn disk_of(&self, names: &[Vec<u8>]) -> Result<Disk, DiskError> {
        let disk = self.disks.of(names);
        let (root, names) = (Arc::clone(&self.root), names.to_vec());
        let has_link = disk.run(move || root.has_link(&names)).await?;
        Ok(if has_link { self.disks.links().clone() } else { disk })
    }

    /// Answers a GET or HEAD for a file that is opened without waiting for a disk, once its entity
    /// tag is strong.
    async fn answer_cached(&self, path: &TargetPath, request: &RequestHead) -> Option<Reply> {
        let time = match self.read_cached(path, request, SystemTime::now())? {
            Reply { settles_in: Some(time), .. } => time,
            reply => return Some(reply),
        };
        sleep(time).await;
        self.read_cached(path, request, SystemTime::now())
    }

    /// Answers a GET or HEAD for a file that is opened without waiting for a disk.
    fn read_cached(&self, path: &TargetPath, request: &RequestHead, now: SystemTime) -> Option<Reply> {
        if path.has_trailing_slash() || path.query().is_some() || !self.is_shown(path) {
            return None;
        }
        match self.root.find_cached(path.names())? {
            Found::File(source) => file_reply(&source, request, now, self.offer()).ok(),
            Found::Directory(_) => None,
        }
    }

    /// Returns what replies with files say of them.
    fn offer(&self) -> FileOffer {
        FileOffer { untrusted: self.untrusted, digests: self.piece_digests.is_some() }
    }

    /// Returns whether files of this path may be served.
    fn is_shown(&self, path: &TargetPath) -> bool {
        !path.names().last().is_some_and(is_partial) && (self.hidden || !path.is_hidden())
    }

    /// Answers a GET or HEAD; the turn to hash is there where digests are asked for.
    ///
    /// # Errors
    /// What [`error_reply`] answers; ELOOP where a symbolic link is met and not to be followed, or
    /// one to another file system is to be listed.
    fn find(
        &self,
        (asked, turn): &(ReadRequest, Option<HashingTurn>),
        now: SystemTime,
        disk: &Disk,
        follow: bool,
    ) -> io::Result<Reply> {
        let ReadRequest { path, head: request, .. } = asked;
        if !self.is_shown(path) {
            return Err(Errno::NOENT.into());
        }
        let directory = match self.root.find(path.names(), follow)? {
            Found::File(_) if path.has_trailing_slash() => return Err(Errno::NOENT.into()),
            Found::File(source) if asks_for_digests(path) => {
                return match self.piece_digests.as_ref().zip(turn.as_ref()) {
                    Some((digests, turn)) => digests.reply(&source, turn),
                    None => Ok(Reply::text(404, "the server computes no digests (its option --no-digests)")),
                };
            }
            Found::File(source) => return file_reply(&source, request, now, self.offer()),
            Found::Directory(directory) => directory,
        };
        if !path.has_trailing_slash() {
            let query = path.query().map(|query| format!("?{query}")).unwrap_or_default();
            let location = format!("{}{query}", directory_page::directory_url(path.names()));
            let head = ReplyHead::new(301).with("Location", &location);
            return Ok(Reply::explained(head, "a directory's name ends in a slash"));
        }
        if directory_json::is_wanted(request) {
            return self.list_as_json(asked, &directory, disk, follow);
        }
        let index: Vec<Vec<u8>> = path.names().iter().cloned().chain([b"index.html".to_vec()]).collect();
        match self.root.find(&index, follow) {
            Ok(Found::File(source)) => return file_reply(&source, request, now, self.offer()),
            Ok(Found::Directory(_)) => {}
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
            // An unreadable index.html must not expose the directory's listing instead.
            Err(error) => return Err(error),
        }
        let Some([share, _permit]) = self.listing_permit(&asked.requester, disk) else {
            return Ok(too_many_listings());
        };
        let order = SortOrder::from_query(path.query());
        let options = ListingOptions { hidden: self.hidden, max_entries: self.max_entries, order };
        let source = ListedDirectory { root: &self.root, directory: &directory, names: path.names(), follow };
        let listing = DirectoryListing::read(source, options)?;
        Ok(directory_page::reply(path.names(), &listing).holding(share))
    }
}

impl StaticFiles {
    /// Lists a directory for a program, whether it has an index.html or not.
    fn list_as_json(
        &self,
        asked: &ReadRequest,
        directory: &File,
        disk: &Disk,
        follow: bool,
    ) -> io::Result<Reply> {
        let Some([share, _permit]) = self.listing_permit(&asked.requester, disk) else {
            return Ok(too_many_listings());
        };
        let path = &asked.path;
        let most = self.max_entries.saturating_mul(directory_json::ENTRIES_PER_HTML_ENTRY);
        let after = directory_json::after(path.query());
        let source = ListedDirectory { root: &self.root, directory, names: path.names(), follow };
        let page = ListingPage::read(source, self.hidden, (&after, most))?;
        Ok(directory_json::reply(&page).holding(share))
    }

    /// Allows one more listing: to be held in memory until it is sent, and to be made now.
    pub(crate) fn listing_permit(&self, requester: &Requester, disk: &Disk) -> Option<[Share<Requester>; 2]> {
        Some([self.listings.take(requester)?, disk.listing_permit(requester)?])
    }
}

/// 503: the requester has as many listings as it may, or the file system.
pub(crate) fn too_many_listings() -> Reply {
    Reply::later(503, 1, "too many directories are being listed; try again")
}

/// How long a request waits for a free descriptor, and how often it tries again.
const EXHAUSTION_TIMEOUT: Duration = Duration::from_secs(2);
const EXHAUSTION_RETRY: Duration = Duration::from_millis(100);

/// Returns whether the server, or its host, lacks descriptors or memory at present.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Maps an error of opening a file to a status; a name that leads out of the root is 404 like a
/// missing one.
fn error_reply(error: &io::Error, request: &RequestHead) -> Reply {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO) => {
            Reply::text(404, "there is no such file")
        }
        Some(Errno::ACCESS | Errno::PERM) => Reply::text(403, "the file may not be read"),
        _ if is_exhaustion(error) => {
            tracing::warn!(target = request.target(), %error, "out of resources");
            Reply::later(503, 1, "too many files are open; try again")
        }
        _ => {
            tracing::error!(target = request.target(), %error, "a file could not be opened");
            Reply::text(500, "the file could not be opened; the server's log says why")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_file_system_have_a_status() {
        let head = b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n";
        let request = RequestHead::parse(head).unwrap().unwrap().0;
        // What is answered like a missing name, is in the tests with a real directory.
        for (errno, status) in
            [(Errno::XDEV, 404), (Errno::ACCESS, 403), (Errno::MFILE, 503), (Errno::IO, 500)]
        {
            assert_eq!(error_reply(&errno.into(), &request).status(), status, "{errno}");
        }
    }
}
