//! Starts an upload: checks name, lock and space, so that a refusal precedes the body.

mod target;

use std::sync::Arc;

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::http::{RequestBody, UploadId};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use longhaul_engine::digest::WantedDigests;
use longhaul_engine::sink::journal::Journal;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::PartFile;
use longhaul_engine::sink::pipeline::Pipeline;
use longhaul_engine::sink::segment_pool::SegmentPool;
use longhaul_engine::sink::writer::WriterChoice;
use longhaul_engine::tree_digest::TreeDigest;

use target::{LockedPartFile, UploadTarget};

use crate::access::Grant;
use crate::admission::connection_slots::ConnectionWatch;
use crate::connection::late_requests;
use crate::paths::disks::{Disk, UploadSlot};
use crate::reply::Reply;
use crate::upload::Uploads;
use crate::upload::body::body_receiver::{BodyConnection, UploadOutcome};
use crate::upload::body::opened::OpenedUpload;
use crate::upload::body::ranged::{RangeClaim, RangedUpload};
use crate::upload::body::ranged_uploads::RangedLookup;
use crate::upload::body::worker::{AfterBody, InboundUpload};
use crate::upload::registry::active::{ActiveUploads, PartFileLock, UploadLiveness};
use crate::upload::registry::upload_journal::{journal, prefix, usable};
use crate::upload::request::command::{AddRange, AppendPart, UploadCommand, UploadOperation, WholeFile};
use crate::upload::request::{collection, refusal};

/// The outcome of a request's head.
pub(crate) enum UploadStart {
    /// The request is answered; no body is received.
    Answered(Reply),
    /// The body can be received.
    Ready(Inbound),
}

/// A request whose body can be received.
pub(crate) enum Inbound {
    /// A body that is the only one its upload receives at this time.
    Upload(Box<InboundUpload>),
    /// One range; other ranges of the upload may arrive at the same time.
    Range(RangeClaim, Arc<ActiveUploads>),
}

impl Inbound {
    pub(crate) fn liveness(&self) -> &Arc<UploadLiveness> {
        match self {
            Self::Upload(upload) => upload.liveness(),
            Self::Range(claim, _) => &claim.liveness,
        }
    }

    /// Records the connection over which the body arrives; `None` if it closes after this request.
    pub(crate) fn add_connection(&self, connection: Option<ConnectionWatch>) {
        if let Self::Range(claim, _) = self {
            claim.upload.add_connection(connection);
        }
    }

    /// Receives the body, then concludes the request.
    pub(crate) fn run(self, connection: BodyConnection) -> UploadOutcome {
        match self {
            Self::Upload(upload) => upload.run(connection),
            Self::Range(claim, active) => claim.receive(connection, &active),
        }
    }
}

/// Why an upload has not started.
pub(crate) enum NotStarted {
    /// Refused, with this reply.
    Refused(Reply),
    /// An older, silent connection of the same upload is being closed; retry once it has ended.
    Superseding,
    /// Another request reserves the space of the same upload; retry once it has.
    Opening,
    /// Another upload of the file is between two ranges; retry until it receives one, or ends.
    BetweenRanges,
    /// Another upload has locked the file; retry for a moment, for its client may have just
    /// disconnected.
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

impl Uploads {
    /// Does everything that does not need the body; blocks on `disk`.
    pub(crate) fn start(
        self: &Arc<Self>,
        command: &UploadCommand,
        disk: &Disk,
    ) -> Result<UploadStart, NotStarted> {
        let answered = |reply| Ok(UploadStart::Answered(reply));
        match &command.operation {
            UploadOperation::MakeDirectory => {
                answered(collection::make(&self.static_files, &command.path, &command.request))
            }
            UploadOperation::List => answered(self.list(command, disk)?),
            UploadOperation::DeleteFile => answered(self.target(command)?.delete()?),
            UploadOperation::AddRange(add) => self.add_range(&self.free_target(command)?, add, disk),
            UploadOperation::Status(id) => answered(self.free_target(command)?.status(*id, self)?),
            UploadOperation::Discard { id, named } => {
                self.completed.forget(*id);
                let target = self.free_target(command)?;
                let reply = target.discard(*named, self)?;
                self.ranged.has_locked(&target.path());
                answered(reply)
            }
            UploadOperation::AppendPart(append) => {
                self.append(self.free_target(command)?, append.clone(), (command.request.body(), disk))
            }
            UploadOperation::WholeFile(whole) => self.whole(self.free_target(command)?, whole.clone(), disk),
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
        self.ranged.make_way(&target.path(), &command.operation, &command.grant)?;
        Ok(target)
    }

    fn append(
        self: &Arc<Self>,
        target: UploadTarget,
        append: AppendPart,
        (body, disk): (RequestBody, &Disk),
    ) -> Result<UploadStart, NotStarted> {
        let id = append.id;
        if body == RequestBody::None
            && let Some(reply) = target.complete_again(&append, self)?
        {
            return Ok(UploadStart::Answered(reply));
        }
        target.may_be_replaced(append.replace)?;
        let LockedPartFile { part, lock, journal: prior } = target.open_superseding(id, &self.active)?;
        self.ranged.has_locked(&target.path());
        let prior = usable(prior, id);
        let size = append.follows(prior.as_ref(), body).inspect_err(|_| self.abandon(&part))?;
        let there = Some(ByteRange::with_len(0, append.offset)).filter(|range| !range.is_empty());
        let committed = there.into_iter().collect();
        let start = PartStart { part, lock, id, size, committed, is_new: prior.is_none(), hash: append.hash };
        let (opened, digest) = self.start_part(&target, start, disk)?;
        let after = match append.complete {
            true => AfterBody::Finish {
                digest: append.digest,
                modified: append.modified,
                replace: append.replace && target.grant.may_replace,
                takes_pieces: append.takes_pieces,
            },
            false => AfterBody::KeepPartial,
        };
        let (exists, uploads) = (target.exists, Arc::clone(self));
        let upload = InboundUpload { opened, after, exists, uploads, id: Some(id), digest };
        Ok(UploadStart::Ready(Inbound::Upload(Box::new(upload))))
    }

    /// Starts to receive a range, beside others of its upload.
    fn add_range(
        &self,
        target: &UploadTarget,
        add: &AddRange,
        disk: &Disk,
    ) -> Result<UploadStart, NotStarted> {
        target.may_be_replaced(add.replace)?;
        let path = target.path();
        let upload = match self.ranged.find_or_open(&path, add.id) {
            RangedLookup::Open(upload) if upload.id() == add.id => upload,
            RangedLookup::Open(upload) => return Err(upload.occupied(&target.grant)),
            RangedLookup::OpenedElsewhere { same: false } => return Err(NotStarted::Busy),
            RangedLookup::OpenedElsewhere { same: true } => return Err(NotStarted::Opening),
            RangedLookup::Absent(_opening) => self.open_ranged(target, add, disk)?,
        };
        if upload.pipeline().size() != Some(add.whole) {
            return Err(refusal::other_length().into());
        }
        let claim = upload.claim(add.range)?;
        Ok(UploadStart::Ready(Inbound::Range(claim, Arc::clone(&self.active))))
    }

    /// Opens an upload for ranges over several connections, where an earlier run or request has
    /// left it.
    fn open_ranged(
        &self,
        target: &UploadTarget,
        add: &AddRange,
        disk: &Disk,
    ) -> Result<Arc<RangedUpload>, NotStarted> {
        let AddRange { id, whole, may_begin, hash, .. } = *add;
        let LockedPartFile { part, lock, journal: prior } = target.open_superseding(id, &self.active)?;
        self.ranged.has_locked(&target.path());
        let prior = usable(prior, id);
        if prior.is_none() && !may_begin {
            self.abandon(&part);
            return Err(late_requests::refusal().into());
        }
        if prior.as_ref().is_some_and(|prior| prior.size != whole) {
            return Err(refusal::other_length().into());
        }
        let is_new = prior.is_none();
        let committed = prior.map(|prior| prior.committed.clone()).unwrap_or_default();
        let start = PartStart { part, lock, id, size: whole, committed, is_new, hash };
        let (opened, _) = self.start_part(target, start, disk)?;
        Ok(self.ranged.start(id, opened)?)
    }

    /// Reserves an upload slot and the space of the quota, then opens the upload; returns the
    /// digest that it continues, too.
    fn start_part(
        &self,
        target: &UploadTarget,
        start: PartStart,
        disk: &Disk,
    ) -> Result<(OpenedUpload, Option<Arc<TreeDigest>>), NotStarted> {
        // Locals are dropped in reverse order: `lock` before `part`, as in `LockedPartFile`.
        let PartStart { part, lock, id, size, committed, is_new, hash } = start;
        let slot = slot(disk, &target.grant).inspect_err(|_| self.abandon(&part))?;
        self.admit(&part, size, &target.grant)?;
        if is_new {
            self.completed.forget(id);
        }
        let journal =
            journal(id, size, target.grant.holder.as_deref()).inspect_err(|_| self.abandon(&part))?;
        let identity = part.identity().map_err(|source| OutputError::Create { path: target.path(), source });
        let tree = self.digests.of((identity?, id), (&committed, size), hash);
        let pipeline =
            Pipeline::new(part, Some(journal), Some(size), committed, WriterChoice::Auto, self.pool())
                .hashing(tree.clone());
        Ok((self.open(pipeline, (lock, slot))?, tree))
    }

    fn whole(
        self: &Arc<Self>,
        target: UploadTarget,
        whole: WholeFile,
        disk: &Disk,
    ) -> Result<UploadStart, NotStarted> {
        let WholeFile { length, digest, modified, replace } = whole;
        target.may_be_replaced(replace)?;
        let LockedPartFile { part, lock, .. } = target.open(&self.active)?;
        let slot = slot(disk, &target.grant).inspect_err(|_| self.abandon(&part))?;
        // A file of unknown size is counted while it comes.
        self.admit(&part, length.unwrap_or_default(), &target.grant)?;
        // BLAKE3 is read back unless Want-Repr-Digest asks otherwise, which a plain PUT does not.
        let in_order =
            digest.as_ref().map(|digest| digest.algorithm).filter(|name| *name != Algorithm::Blake3);
        let pipeline = Pipeline::new(part, None, length, RangeSet::new(), WriterChoice::Auto, self.pool())
            .hashing_in_order(WantedDigests { whole: in_order, pieces: None }, None);
        let replace = replace && target.grant.may_replace;
        let after = AfterBody::Finish { digest, modified, replace, takes_pieces: false };
        let opened = self.open(pipeline, (lock, slot))?;
        let (exists, uploads) = (target.exists, Arc::clone(self));
        let upload = InboundUpload { opened, after, exists, uploads, id: None, digest: None };
        Ok(UploadStart::Ready(Inbound::Upload(Box::new(upload))))
    }

    /// Counts a partial file against the quota; refuses a size that no file of Linux has.
    fn admit(&self, part: &PartFile, size: Bytes, grant: &Grant) -> Result<(), Reply> {
        if i64::try_from(size.get()).is_err() {
            self.abandon(part);
            return Err(refusal::too_large());
        }
        self.partials.admit(part.path(), size, grant).map_err(|over| {
            self.abandon(part);
            refusal::over_quota(over)
        })
    }

    /// Removes a partial file that holds nothing to resume.
    fn abandon(&self, part: &PartFile) {
        self.partials.abandon(part);
    }

    fn pool(&self) -> SegmentPool {
        SegmentPool::new(&self.memory, None, 1)
    }
}

/// Parameters of an upload with an ID, whose partial file is open.
struct PartStart {
    /// Dropped before `part`, as in [`LockedPartFile`].
    lock: PartFileLock,
    part: PartFile,
    id: UploadId,
    size: Bytes,
    /// The bytes that earlier requests have committed.
    committed: RangeSet,
    /// Whether no usable journal of this upload exists.
    is_new: bool,
    /// As of [`AppendPart::hash`].
    hash: bool,
}

fn slot(disk: &Disk, grant: &Grant) -> Result<UploadSlot, Reply> {
    disk.upload_slot(&grant.requester()).ok_or_else(refusal::too_many_uploads)
}

impl AppendPart {
    /// Returns whether this is the request to complete an upload of `size` bytes.
    fn completes(&self, size: Bytes) -> bool {
        self.complete && self.offset == size
    }

    /// Checks that the part continues the upload; returns the size of the whole file.
    fn follows(&self, prior: Option<&Journal>, body: RequestBody) -> Result<Bytes, Reply> {
        let there = prior.map_or(Bytes::ZERO, prefix);
        if let Some(prior) = prior.filter(|prior| self.completes(prior.size))
            && self.offset != there
        {
            return Err(refusal::incomplete(&prior.committed, prior.size));
        }
        if self.offset != there {
            return Err(refusal::offset_mismatch(there));
        }
        let size = match (prior.map(|prior| prior.size), self.length) {
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
