//! Starts an upload: checks name, lock and space, so that a refusal precedes the body.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::checksum::Algorithm;
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::{
    Condition, ETag, ReplyHead, RequestBody, RequestHead, TargetPath, UPLOAD_COMPLETE, UPLOAD_LENGTH,
    UPLOAD_OFFSET, UPLOAD_RANGES, UploadId, Validator, Validators, held_ranges, upload_bool,
};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use longhaul_engine::digest::WantedDigests;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::{Journal, JournalError, JournalSource, SourceMatch, StoredJournal};
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::{self, PartFile};
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::sink::pipeline::Pipeline;
use longhaul_engine::sink::segment_pool::SegmentPool;
use longhaul_engine::sink::writer::WriterChoice;
use rustix::fs::FileType;

use super::active::{PartFileLock, UploadLiveness};
use super::command::{AddRange, AppendPart, UploadCommand, UploadOperation, WholeFile};
use super::partials::OverQuota;
use super::range_worker::InboundRange;
use super::ranged::{HeldUpload, RangedLookup, RangedUpload};
use super::worker::{self, AfterBody, BodyConnection, InboundUpload, UploadOutcome};
use super::{ActiveUploads, Uploads, collection, refusal};
use crate::access::Grant;
use crate::file_reply::entity_tag;
use crate::reply::Reply;
use crate::static_files::StaticFiles;

/// The outcome of a request's head.
pub(super) enum UploadStart {
    /// The request is answered; no body is received.
    Answered(Reply),
    /// The body can be received.
    Ready(Inbound),
}

/// A request whose body can be received.
pub(super) enum Inbound {
    /// It is all that its upload receives at the time.
    Upload(Box<InboundUpload>),
    /// It brings one of several ranges.
    Range(InboundRange),
}

impl Inbound {
    pub(super) fn liveness(&self) -> &Arc<UploadLiveness> {
        match self {
            Self::Upload(upload) => &upload.liveness,
            Self::Range(range) => range.liveness(),
        }
    }

    /// Receives the body, then concludes the request.
    pub(super) fn run(self, connection: BodyConnection) -> UploadOutcome {
        match self {
            Self::Upload(upload) => upload.run(connection),
            Self::Range(range) => range.run(connection),
        }
    }
}

/// Why an upload has not started.
pub(super) enum NotStarted {
    /// Refused, with this reply.
    Refused(Reply),
    /// An older, silent connection of the same upload is being closed; retry once it has ended.
    Superseding,
    /// Another request reserves the space of the same upload; retry once it has.
    Opening,
    /// Another upload of the file awaits its next range; retry until that has come, or the upload is given up.
    BetweenRanges,
    /// Another upload has locked the file; retry for a moment, for its client may have just disconnected.
    Busy,
}

impl From<OutputError> for NotStarted {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Busy(_) => Self::Busy,
            error => Self::Refused(refusal::output(&error)),
        }
    }
}

impl From<Reply> for NotStarted {
    fn from(reply: Reply) -> Self {
        Self::Refused(reply)
    }
}

/// A partial file, locked for this request.
struct LockedPartFile {
    /// Dropped before `part` closes the file: a closed file's inode number may be reused.
    lock: PartFileLock,
    part: PartFile,
}

/// The file that an upload writes.
struct UploadTarget {
    grant: Grant,
    directory: Directory,
    name: Vec<u8>,
    /// Whether a file of this name exists.
    exists: bool,
    /// Its entity tag.
    tag: Option<ETag>,
}

impl Uploads {
    /// Does everything that does not need the body; blocks on the disk.
    pub(super) fn start(&self, command: &UploadCommand) -> Result<UploadStart, NotStarted> {
        let answered = |reply| Ok(UploadStart::Answered(reply));
        match &command.operation {
            UploadOperation::MakeDirectory => {
                answered(collection::make(&self.static_files, &command.path, &command.request))
            }
            UploadOperation::List => answered(self.list(command)?),
            UploadOperation::DeleteFile => answered(self.target(command)?.delete()?),
            UploadOperation::AddRange(add) => self.add_range(&self.free_target(command)?, add),
            UploadOperation::Status(id) => answered(self.free_target(command)?.status(*id, &self.active)?),
            UploadOperation::Discard(id) => {
                let target = self.free_target(command)?;
                let reply = target.discard(*id, self)?;
                self.ranged.has_locked(&target.path());
                answered(reply)
            }
            UploadOperation::AppendPart(append) => {
                self.append(self.free_target(command)?, append.clone(), command.request.body())
            }
            UploadOperation::WholeFile(whole) => self.whole(self.free_target(command)?, whole.clone()),
        }
    }

    /// Finds what a command writes; compares it with the command's condition.
    fn target(&self, command: &UploadCommand) -> Result<UploadTarget, Reply> {
        let target = UploadTarget::find(&self.static_files, &command.path, &command.grant)?;
        target.check_match(&command.request)?;
        Ok(target)
    }

    /// Finds what a command writes, once no other upload of ranges holds the file.
    fn free_target(&self, command: &UploadCommand) -> Result<UploadTarget, NotStarted> {
        let target = self.target(command)?;
        self.ranged.make_way(&target.path(), &command.operation)?;
        Ok(target)
    }

    fn append(
        &self,
        target: UploadTarget,
        append: AppendPart,
        body: RequestBody,
    ) -> Result<UploadStart, NotStarted> {
        let id = append.id;
        target.may_be_replaced(append.replace)?;
        let LockedPartFile { part, lock } = target.open_superseding(id, &self.active)?;
        self.ranged.has_locked(&target.path());
        let prior = usable(part.journal(), id)?;
        let size = append.follows(prior.as_ref(), body).inspect_err(|_| self.abandon(&part))?;
        let slot = self.slot().inspect_err(|_| self.abandon(&part))?;
        self.admit(&part, size)?;
        let journal =
            journal(id, size, target.grant.holder.as_deref()).inspect_err(|_| self.abandon(&part))?;
        let there = Some(ByteRange::with_len(0, append.offset)).filter(|range| !range.is_empty());
        let (committed, exists) = (there.into_iter().collect(), target.exists);
        let identity = part.identity().map_err(|source| OutputError::Create { path: target.path(), source });
        let passing = self.digests.of((identity?, id), (&committed, size), append.hash);
        let after = match append.complete {
            true => AfterBody::Finish {
                digest: append.digest,
                modified: append.modified,
                replace: append.replace && target.grant.may_replace,
                takes_pieces: append.takes_pieces,
            },
            false => AfterBody::KeepPartial,
        };
        let pipeline =
            Pipeline::new(part, Some(journal), Some(size), committed, WriterChoice::Auto, self.pool())
                .hashing(passing.clone());
        let digest = passing.map(|passing| (Arc::clone(&self.digests), passing));
        let mut upload = InboundUpload::prepare(pipeline, after, exists, self, (lock, slot))?;
        upload.digest = digest;
        Ok(UploadStart::ready(upload))
    }

    /// Starts to receive a range, beside others of its upload.
    fn add_range(&self, target: &UploadTarget, add: &AddRange) -> Result<UploadStart, NotStarted> {
        target.may_be_replaced(add.replace)?;
        let path = target.path();
        let upload = match self.ranged.find_or_open(&path, add.id) {
            RangedLookup::Open(upload) if upload.id() == add.id => upload,
            RangedLookup::Open(upload) => return Err(upload.occupied()),
            RangedLookup::OpenedElsewhere { same: false } => return Err(NotStarted::Busy),
            RangedLookup::OpenedElsewhere { same: true } => return Err(NotStarted::Opening),
            RangedLookup::Absent(_opening) => self.open_ranged(target, add)?,
        };
        if upload.pipeline().size() != Some(add.whole) {
            return Err(refusal::other_length().into());
        }
        let claim = upload.claim(add.range)?;
        Ok(UploadStart::Ready(Inbound::Range(InboundRange::new(claim, &self.active))))
    }

    /// Opens an upload for ranges over several connections, where an earlier run or request has left it.
    fn open_ranged(&self, target: &UploadTarget, add: &AddRange) -> Result<Arc<RangedUpload>, NotStarted> {
        let AddRange { id, whole, hash, .. } = *add;
        let LockedPartFile { part, lock } = target.open_superseding(id, &self.active)?;
        self.ranged.has_locked(&target.path());
        let prior = usable(part.journal(), id)?;
        if prior.as_ref().is_some_and(|prior| prior.size() != whole) {
            return Err(refusal::other_length().into());
        }
        let slot = self.slot().inspect_err(|_| self.abandon(&part))?;
        self.admit(&part, whole)?;
        let journal =
            journal(id, whole, target.grant.holder.as_deref()).inspect_err(|_| self.abandon(&part))?;
        let committed = prior.map(|prior| prior.committed().clone()).unwrap_or_default();
        let identity = part.identity().map_err(|source| OutputError::Create { path: target.path(), source });
        let passing = self.digests.of((identity?, id), (&committed, whole), hash);
        let pipeline =
            Pipeline::new(part, Some(journal), Some(whole), committed, WriterChoice::Auto, self.pool())
                .hashing(passing);
        let writer = worker::reserve(&pipeline, &self.partials)?;
        let (pipeline, liveness) = (Arc::new(pipeline), Arc::new(UploadLiveness::default()));
        let entry = self.active.enter(&pipeline, &liveness);
        let held = HeldUpload { writer, slot, lock, entry };
        Ok(RangedUpload::start(&self.ranged, id, pipeline, liveness, held)?)
    }

    fn whole(&self, target: UploadTarget, whole: WholeFile) -> Result<UploadStart, NotStarted> {
        let WholeFile { length, digest, modified, replace } = whole;
        target.may_be_replaced(replace)?;
        let LockedPartFile { part, lock } = target.open(&self.active)?;
        let slot = self.slot().inspect_err(|_| self.abandon(&part))?;
        // BLAKE3 is read back unless Want-Repr-Digest asks otherwise, which a plain PUT does not.
        let in_order =
            digest.as_ref().map(|digest| digest.algorithm).filter(|name| *name != Algorithm::Blake3);
        let pipeline = Pipeline::new(part, None, length, RangeSet::new(), WriterChoice::Auto, self.pool())
            .hashing_in_order(WantedDigests { whole: in_order, pieces: None }, None);
        let replace = replace && target.grant.may_replace;
        let after = AfterBody::Finish { digest, modified, replace, takes_pieces: false };
        Ok(UploadStart::ready(InboundUpload::prepare(pipeline, after, target.exists, self, (lock, slot))?))
    }

    /// Counts a partial file against the quota.
    fn admit(&self, part: &PartFile, size: Bytes) -> Result<(), Reply> {
        self.partials.admit(part.path(), size).map_err(|OverQuota| {
            self.abandon(part);
            refusal::over_quota()
        })
    }

    /// Removes a partial file that holds nothing to resume.
    fn abandon(&self, part: &PartFile) {
        self.partials.abandon(part);
    }

    fn pool(&self) -> SegmentPool {
        SegmentPool::new(&self.memory, None, 1)
    }

    fn slot(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Reply> {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        slot.map_err(|_| refusal::too_many_uploads())
    }
}

impl AppendPart {
    /// Checks that the part continues the upload; returns the size of the whole file.
    fn follows(&self, prior: Option<&Journal>, body: RequestBody) -> Result<Bytes, Reply> {
        let there = prior.map_or(Bytes::ZERO, prefix);
        if let Some(prior) = prior.filter(|prior| self.complete && self.offset == prior.size())
            && self.offset != there
        {
            return Err(refusal::incomplete(prior.committed(), prior.size()));
        }
        if self.offset != there {
            return Err(refusal::offset_mismatch(there));
        }
        let size = match (prior.map(Journal::size), self.length) {
            (None, None) => return Err(Reply::text(400, "an upload begins with Upload-Length")),
            (Some(begun), Some(length)) if begun != length => {
                return Err(refusal::other_length());
            }
            (Some(size), _) | (None, Some(size)) => size,
        };
        match body {
            RequestBody::Length(length) if length > size - there => {
                Err(Reply::text(400, "the part is longer than what is left of the file"))
            }
            _ => Ok(size),
        }
    }
}

impl UploadStart {
    fn ready(upload: InboundUpload) -> Self {
        Self::Ready(Inbound::Upload(Box::new(upload)))
    }
}

impl UploadTarget {
    /// Opens the directory below the root, and checks what exists under the name.
    fn find(files: &StaticFiles, path: &TargetPath, grant: &Grant) -> Result<Self, Reply> {
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

    fn path(&self) -> PathBuf {
        self.directory.path_of(OsStr::from_bytes(&self.name))
    }

    fn may_be_replaced(&self, replace: bool) -> Result<(), Reply> {
        if self.exists && !replace {
            return Err(Reply::text(412, "there is a file of this name"));
        }
        if self.exists && !self.grant.may_replace {
            return Err(Reply::text(403, "the token does not permit to replace a file"));
        }
        Ok(())
    }

    /// Deletes the file.
    fn delete(&self) -> Result<Reply, Reply> {
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
    fn check_match(&self, request: &RequestHead) -> Result<(), Reply> {
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

    fn open(&self, active: &Arc<ActiveUploads>) -> Result<LockedPartFile, NotStarted> {
        let name = OsStr::from_bytes(&self.name);
        let failed = |source| OutputError::Create { path: self.path(), source };
        let part = PartFile::open_in(self.directory.try_clone().map_err(failed)?, name)?;
        let lock = active.lock_part(part.identity().map_err(failed)?);
        let lock = lock.ok_or(NotStarted::Busy)?;
        let found = part.journal().map_err(|error| refusal::output(&error.into()))?;
        let holder = found.sound().and_then(|journal| holder_of(&journal).map(str::to_owned));
        // The only token of a server may write over every upload.
        if self.grant.holder.is_some()
            && holder.is_some()
            && self.grant.holder.as_deref() != holder.as_deref()
        {
            return Err(refusal::of_another_token().into());
        }
        Ok(LockedPartFile { part, lock })
    }

    /// Opens the partial file for a part of an upload; cancels an older, silent connection of the same upload,
    /// which would otherwise keep the lock until its stall timeout.
    fn open_superseding(
        &self,
        id: UploadId,
        active: &Arc<ActiveUploads>,
    ) -> Result<LockedPartFile, NotStarted> {
        match self.open(active) {
            Err(NotStarted::Busy) if self.cancel_silent(id, active) => Err(NotStarted::Superseding),
            // The other upload may have ended since.
            Err(NotStarted::Busy) => self.open(active),
            opened => opened,
        }
    }

    fn cancel_silent(&self, id: UploadId, active: &ActiveUploads) -> bool {
        active.cancel_silent(&self.path(), |journal| is_of(journal, id))
    }

    /// Reads the journal of an upload; one in progress may have received more than its journal says.
    fn journal(&self, id: UploadId) -> Result<Journal, Reply> {
        let journal = part_file::journal_of(&self.directory, OsStr::from_bytes(&self.name));
        usable(journal, id)?.ok_or_else(refusal::no_upload)
    }

    /// Reports the offset of an upload.
    fn status(&self, id: UploadId, active: &ActiveUploads) -> Result<Reply, NotStarted> {
        if self.cancel_silent(id, active) {
            // The cancelled upload commits what it has received; its journal is then exact.
            return Err(NotStarted::Superseding);
        }
        let journal = self.journal(id)?;
        let head = ReplyHead::new(204)
            .with(UPLOAD_OFFSET, &prefix(&journal).get().to_string())
            .with(UPLOAD_LENGTH, &journal.size().get().to_string())
            .with(UPLOAD_RANGES, &held_ranges(journal.committed()))
            .with(UPLOAD_COMPLETE, upload_bool(false))
            .with("Cache-Control", "no-store");
        Ok(Reply::empty(head))
    }

    /// Removes the partial file and journal of an upload.
    fn discard(&self, id: UploadId, uploads: &Uploads) -> Result<Reply, NotStarted> {
        self.journal(id)?;
        let locked = self.open_superseding(id, &uploads.active)?;
        // The previous holder of the lock may have finished this upload, or begun another.
        self.journal(id).inspect_err(|_| uploads.abandon(&locked.part))?;
        uploads.partials.discard(&locked.part);
        Ok(Reply::empty(ReplyHead::new(204)))
    }
}

/// Separates the name of the token from the upload's URL in a journal.
const HOLDER: &str = ";token=";

/// Makes the journal of an upload, with its ID as the URL and the validator.
fn journal(id: UploadId, size: Bytes, holder: Option<&str>) -> Result<Journal, Reply> {
    let (name, identity) = (url_of(id), identity_of(id));
    let identity = identity.ok_or_else(|| Reply::text(400, "the upload's name is no entity tag"))?;
    let shown = holder.map_or_else(|| name.clone(), |holder| format!("{name}{HOLDER}{holder}"));
    Ok(Journal::new(size, vec![JournalSource::new(&name, shown, identity)], None))
}

/// Returns the name of the token that began an upload.
pub(super) fn holder_of(journal: &Journal) -> Option<&str> {
    journal.sources().first().and_then(|source| source.url().split_once(HOLDER)).map(|(_, holder)| holder)
}

/// What the URL of an upload begins with in a journal; that of a download begins with http, gsiftp or the like.
const SCHEME: &str = "upload:";

/// Returns whether a journal is of an upload to a server, not of a download into the served directory.
pub(super) fn is_upload(journal: &Journal) -> bool {
    journal.sources().first().is_some_and(|source| source.url().starts_with(SCHEME))
}

fn url_of(id: UploadId) -> String {
    format!("{SCHEME}{id}")
}

fn identity_of(id: UploadId) -> Option<Identity> {
    Validator::parse(&format!("\"{id}\"")).map(Identity::from)
}

fn is_of(journal: &Journal, id: UploadId) -> bool {
    let identity = identity_of(id);
    journal.match_source(&url_of(id), journal.size(), identity.as_ref(), None) == SourceMatch::Same
}

/// Returns the journal of this upload, where it is sound; a damaged one is logged.
fn usable(found: Result<StoredJournal, JournalError>, id: UploadId) -> Result<Option<Journal>, Reply> {
    let found = found.map_err(|error| refusal::output(&error.into()))?;
    if let StoredJournal::Damaged { why } = &found {
        tracing::warn!(%id, "the journal of an upload is damaged: {why}");
    }
    Ok(found.sound().filter(|journal| is_of(journal, id)))
}

/// Returns how many bytes are committed from the start on without a gap.
fn prefix(journal: &Journal) -> Bytes {
    let whole = ByteRange::with_len(0, journal.size());
    journal.committed().gaps(whole).first().map_or(journal.size(), |gap| Bytes::new(gap.start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_that_an_earlier_version_began_is_resumed() {
        let id = UploadId::new([0x5a; 16]);
        let digest = "ac2ef7d75e7a2b4bb0fb8a1bb5bf0d6ff9d9f3c5b4d9c0e3a6e3a6c0d1f0b6a7";
        let text = |url_digest: &str| {
            format!(
                r#"{{"version":1,"url":"upload:{id}","url_digest":"{url_digest}","size":9,"validator":"\"{id}\"","committed":[[0,4]]}}"#
            )
        };
        let own = journal(id, Bytes::new(9), None).ok().unwrap();
        let own = String::from_utf8(own.encode(&RangeSet::new()).unwrap()).unwrap();
        let (_, rest) = own.split_once(r#""url_digest":""#).unwrap();
        let (url_digest, _) = rest.split_once('"').unwrap();
        let found = |text: String| {
            let journal = Journal::decode(text.as_bytes()).unwrap();
            usable(Ok(StoredJournal::Sound(journal)), id).ok().flatten()
        };
        assert_eq!(found(text(url_digest)).map(|journal| prefix(&journal)), Some(Bytes::new(4)));
        assert!(found(text(digest)).is_none(), "another upload's");
    }
}
