//! The file that an upload writes: found, compared with conditions, its partial file locked.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::proto::http::{
    Condition, ETag, ReplyHead, RequestHead, TargetPath, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_OFFSET,
    UPLOAD_RANGES, UploadId, Validators, held_ranges, upload_bool,
};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::{Journal, StoredJournal};
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::{self, PartFile};
use longhaul_engine::sink::part_names::is_partial;
use rustix::fs::FileType;

use super::NotStarted;
use crate::access::Grant;
use crate::reply::Reply;
use crate::reply::etag::entity_tag;
use crate::reply::static_files::StaticFiles;
use crate::upload::Uploads;
use crate::upload::registry::active::ActiveUploads;
use crate::upload::registry::active::PartFileLock;
use crate::upload::registry::recently_completed::CompletedUpload;
use crate::upload::registry::upload_journal::{holder_of, is_of, prefix, usable};
use crate::upload::request::command::{AppendPart, upload_id};
use crate::upload::request::refusal;

/// A partial file, locked for this request.
pub(super) struct LockedPartFile {
    /// Dropped before `part` closes the file: a closed file's inode number may be reused.
    pub(super) lock: PartFileLock,
    pub(super) part: PartFile,
    pub(super) journal: StoredJournal,
}

/// The file that an upload writes.
pub(super) struct UploadTarget {
    pub(super) grant: Grant,
    pub(super) directory: Directory,
    pub(super) name: Vec<u8>,
    /// Whether a file of this name exists.
    pub(super) exists: bool,
    /// Its entity tag.
    pub(super) tag: Option<ETag>,
}

impl UploadTarget {
    /// Opens the directory below the root, and checks what exists under the name.
    pub(super) fn find(files: &StaticFiles, path: &TargetPath, grant: &Grant) -> Result<Self, Reply> {
        let Some((name, above)) = path.names().split_last() else {
            return Err(Reply::text(409, "the root is a directory; name a file"));
        };
        if path.has_trailing_slash() {
            return Err(Reply::text(409, "a name that ends in a slash is a directory's; name a file"));
        }
        if (path.is_hidden() && !files.hidden) || path.names().iter().any(is_partial) {
            return Err(Reply::text(403, "files of this name are not taken"));
        }
        let directory = files.root.directory(above).map_err(|error| refusal::directory(&error))?;
        // A symbolic link may lead out of the root; other types than files are not replaced.
        let (exists, tag) = match directory.look(OsStr::from_bytes(name), false) {
            Ok(there) => match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile => {
                    let modified = (there.st_mtime, i64::try_from(there.st_mtime_nsec).unwrap_or(0));
                    let size = u64::try_from(there.st_size).unwrap_or(0);
                    (true, entity_tag(size, modified, SystemTime::now()).ok())
                }
                FileType::Directory => return Err(Reply::text(409, "there is a directory of this name")),
                _ => return Err(Reply::text(403, "what has this name is no file, and is not replaced")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => (false, None),
            Err(error) => return Err(refusal::directory(&error)),
        };
        Ok(Self { grant: grant.clone(), directory, name: name.clone(), exists, tag })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path_of(OsStr::from_bytes(&self.name))
    }

    pub(super) fn may_be_replaced(&self, replace: bool) -> Result<(), Reply> {
        if self.exists && !replace {
            return Err(Reply::text(412, "there is a file of this name"));
        }
        if self.exists && !self.grant.may_replace {
            return Err(Reply::text(403, "the token does not permit to replace a file"));
        }
        Ok(())
    }

    /// Deletes the file.
    pub(super) fn delete(&self) -> Result<Reply, Reply> {
        if !self.exists {
            return Err(Reply::text(404, "there is no such file"));
        }
        let removed = self.directory.remove(OsStr::from_bytes(&self.name));
        match removed.and_then(|()| self.directory.sync()) {
            Ok(()) => Ok(Reply::empty(ReplyHead::new(204))),
            Err(error) => Err(refusal::directory(&error)),
        }
    }

    /// Evaluates If-Match (RFC 9110, section 13.1.1).
    pub(super) fn check_match(&self, request: &RequestHead) -> Result<(), Reply> {
        if request.header("if-match").is_none() {
            return Ok(());
        }
        let validators = self.tag.clone().map(|tag| Validators::new(tag, SystemTime::UNIX_EPOCH));
        match validators.map(|validators| validators.evaluate(request)) {
            Some(Condition::Proceed | Condition::NotModified) => Ok(()),
            Some(Condition::Failed) | None => {
                Err(Reply::text(412, "the file is not the one that the request means"))
            }
        }
    }

    /// Opens the partial file for an upload of this token.
    pub(super) fn open(&self, active: &Arc<ActiveUploads>) -> Result<LockedPartFile, NotStarted> {
        self.check_holder(self.lock(active)?)
    }

    /// Returns a locked partial file if this token may continue it or start over.
    fn check_holder(&self, locked: LockedPartFile) -> Result<LockedPartFile, NotStarted> {
        let holder = match &locked.journal {
            StoredJournal::Sound(journal) => holder_of(journal),
            StoredJournal::Absent | StoredJournal::Damaged { .. } => None,
        };
        if !self.grant.may_start_over(holder) {
            return Err(refusal::of_another_token().into());
        }
        Ok(locked)
    }

    fn lock(&self, active: &Arc<ActiveUploads>) -> Result<LockedPartFile, NotStarted> {
        let name = OsStr::from_bytes(&self.name);
        let failed = |source| OutputError::Create { path: self.path(), source };
        let part = PartFile::open_in(self.directory.try_clone().map_err(failed)?, name)?;
        let lock = active.lock_part(part.identity().map_err(failed)?).ok_or(NotStarted::Busy)?;
        let journal = part.journal()?;
        Ok(LockedPartFile { lock, part, journal })
    }

    /// Opens the partial file for a part of an upload; cancels an older, silent connection of the
    /// same upload, which would otherwise keep the lock until its stall timeout.
    pub(super) fn open_superseding(
        &self,
        id: UploadId,
        active: &Arc<ActiveUploads>,
    ) -> Result<LockedPartFile, NotStarted> {
        self.check_holder(self.lock_superseding(id, active)?)
    }

    fn lock_superseding(
        &self,
        id: UploadId,
        active: &Arc<ActiveUploads>,
    ) -> Result<LockedPartFile, NotStarted> {
        match self.lock(active) {
            Err(NotStarted::Busy) if self.cancel_silent(id, active) => Err(NotStarted::Superseding),
            // The other upload may have ended since.
            Err(NotStarted::Busy) => self.lock(active),
            locked => locked,
        }
    }

    pub(super) fn cancel_silent(&self, id: UploadId, active: &ActiveUploads) -> bool {
        active.cancel_silent(&self.path(), |journal| is_of(journal, id))
    }

    /// Reads the journal of an upload; one in progress may have received more than its journal
    /// says.
    pub(super) fn journal(&self, id: UploadId) -> Result<Journal, Reply> {
        let journal = part_file::journal_of(&self.directory, OsStr::from_bytes(&self.name));
        let journal = journal.map_err(|error| refusal::output(&error))?;
        usable(journal, id).ok_or_else(refusal::no_upload)
    }

    /// Reports the offset of an upload.
    pub(super) fn status(&self, id: UploadId, uploads: &Uploads) -> Result<Reply, NotStarted> {
        if self.cancel_silent(id, &uploads.active) {
            // The cancelled upload commits what it has received; its journal is then exact.
            return Err(NotStarted::Superseding);
        }
        let reply = |offset: Bytes, size: Bytes, complete| {
            ReplyHead::new(204)
                .with(UPLOAD_OFFSET, &offset.get().to_string())
                .with(UPLOAD_LENGTH, &size.get().to_string())
                .with(UPLOAD_COMPLETE, upload_bool(complete))
                .with("Cache-Control", "no-store")
        };
        let head = match self.journal(id) {
            Ok(journal) => reply(prefix(&journal), journal.size, false)
                .with(UPLOAD_RANGES, &held_ranges(&journal.committed)),
            Err(refused) => {
                let file = self.completed(id, uploads).ok_or(refused)?.file;
                reply(file.size, file.size, true)
            }
        };
        Ok(Reply::empty(head))
    }

    /// Returns the upload that wrote the file, which may have got its name since
    /// [`find`](Self::find).
    fn completed(&self, id: UploadId, uploads: &Uploads) -> Option<CompletedUpload> {
        let file = self.directory.look(OsStr::from_bytes(&self.name), false).ok()?;
        uploads.completed.find(id, file.into())
    }

    /// Returns the reply to a repeated completing request, whose client has lost the first reply.
    pub(super) fn complete_again(
        &self,
        append: &AppendPart,
        uploads: &Uploads,
    ) -> Result<Option<Reply>, Reply> {
        let Some(done) = self.completed(append.id, uploads) else { return Ok(None) };
        let size = done.file.size;
        if !append.completes(size) || append.length.is_some_and(|length| length != size) {
            return Ok(None);
        }
        if append.digest != done.digest {
            uploads.completed.forget(append.id);
            return Ok(None);
        }
        // The first reply may have been lost before this was done.
        self.directory.sync().map_err(|error| refusal::directory(&error))?;
        Ok(Some(Reply::empty(ReplyHead::new(204))))
    }

    /// Removes the partial file and journal of an upload, which its client or the listing names so.
    pub(super) fn discard(&self, named: UploadId, uploads: &Uploads) -> Result<Reply, NotStarted> {
        let id = self.id_of(named)?;
        let LockedPartFile { part, lock: _lock, journal } = self.lock_superseding(id, &uploads.active)?;
        // The previous holder of the lock may have finished this upload, or begun another.
        if usable(journal, id).is_none() {
            uploads.abandon(&part);
            return Err(refusal::no_upload().into());
        }
        uploads.partials.discard(&part);
        Ok(Reply::empty(ReplyHead::new(204)))
    }

    /// Returns the ID within the server of the paused upload, which may be that of another token.
    fn id_of(&self, named: UploadId) -> Result<UploadId, Reply> {
        let found = part_file::journal_of(&self.directory, OsStr::from_bytes(&self.name));
        let found = found.map_err(|error| refusal::output(&error))?.sound();
        let journal = found.filter(|journal| self.grant.may_discard(holder_of(journal)));
        let id = journal.and_then(|journal| {
            let ids = [named, upload_id(named, holder_of(&journal))];
            ids.into_iter().find(|id| is_of(&journal, *id))
        });
        id.ok_or_else(refusal::no_upload)
    }
}
