//! The beginning of an upload: everything that can be refused is refused here, before the body comes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::identity::Identity;
use longhaul_core::proto::http::{
    ReplyHead, RequestBody, RequestHead, TargetError, TargetPath, UPLOAD_COMPLETE, UPLOAD_LENGTH,
    UPLOAD_OFFSET, UploadId, Validator, upload_bool,
};
use longhaul_core::ranges::{ByteRange, RangeSet};
use longhaul_core::units::Bytes;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::{Journal, JournalError, JournalSource, SourceMatch, StoredJournal};
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::{self, PartFile};
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::sink::pipeline::Pipeline;
use longhaul_engine::sink::segment_pool::SegmentPool;
use longhaul_engine::sink::writer::WriterChoice;
use rustix::fs::FileType;

use super::receive::{Then, Upload};
use super::receiving::Claim;
use super::request::{Append, Operation, Whole};
use super::{Receiving, Uploads, refusal};
use crate::reply::Reply;
use crate::site::Site;

/// What came of a request's head.
pub(super) enum Begun {
    /// Everything: this is the answer.
    Answered(Reply),
    /// The body may come.
    Ready(Box<Upload>),
}

/// Why an upload does not begin.
pub(super) enum Unready {
    /// It is not taken.
    Refused(Reply),
    /// An older connection of it is as good as dead and ends now: it can begin when that is done.
    Ending,
    /// Another upload has the file; its client may be gone already, which shows in a moment.
    Busy,
}

impl From<OutputError> for Unready {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Busy(_) => Self::Busy,
            error => Self::Refused(refusal::output(&error)),
        }
    }
}

impl From<Reply> for Unready {
    fn from(reply: Reply) -> Self {
        Self::Refused(reply)
    }
}

/// A partial file that is this request's alone.
struct Held {
    /// Given back before the file is closed: its inode's number may then be another's.
    claim: Claim,
    part: PartFile,
}

/// A name to write to.
struct Target {
    directory: Directory,
    name: Vec<u8>,
    /// Whether a file has it.
    exists: bool,
}

impl Uploads {
    /// Does all that can be done without the body; waits for the disk.
    pub(super) fn begin(
        &self,
        site: &Site,
        receiving: &Arc<Receiving>,
        request: &RequestHead,
    ) -> Result<Begun, Unready> {
        if !self.token.allows(request) {
            return Err(refusal::unauthorized().into());
        }
        let path = TargetPath::parse(request.target()).map_err(|error| match error {
            TargetError::Climbs => Reply::text(403, "nothing is written outside the served directory"),
            error => Reply::text(400, &error.to_string()),
        })?;
        let operation = Operation::of(request, &path)?;
        let target = Target::find(site, &path)?;
        match operation {
            Operation::Look(id) => Ok(Begun::Answered(target.look(id, receiving)?)),
            Operation::Drop(id) => Ok(Begun::Answered(target.drop_upload(id, receiving)?)),
            Operation::Append(append) => self.append(target, append, request.body(), receiving),
            Operation::Whole(whole) => self.whole(target, whole, receiving),
        }
    }

    fn append(
        &self,
        target: Target,
        append: Append,
        body: RequestBody,
        receiving: &Arc<Receiving>,
    ) -> Result<Begun, Unready> {
        let id = append.id;
        target.may_be_replaced(append.replace)?;
        let Held { part, claim } = target.open_for(id, receiving)?;
        let prior = usable(part.journal(), id)?;
        let size = append.follows(prior.as_ref(), body).inspect_err(|_| part.abandon())?;
        let slot = self.slot().inspect_err(|_| part.abandon())?;
        let journal = journal(id, size).inspect_err(|_| part.abandon())?;
        let there = Some(ByteRange::with_len(0, append.offset)).filter(|range| !range.is_empty());
        let (committed, exists) = (there.into_iter().collect(), target.exists);
        let then = match append.complete {
            true => Then::Finish { digest: append.digest, replace: append.replace },
            false => Then::GoOn,
        };
        let pipeline =
            Pipeline::new(part, Some(journal), Some(size), committed, WriterChoice::Auto, self.pool());
        Ok(Begun::ready(Upload::prepare(pipeline, then, exists, receiving, (claim, slot))?))
    }

    fn whole(&self, target: Target, whole: Whole, receiving: &Arc<Receiving>) -> Result<Begun, Unready> {
        let Whole { length, digest, replace } = whole;
        target.may_be_replaced(replace)?;
        let Held { part, claim } = target.open(receiving)?;
        let slot = self.slot().inspect_err(|_| part.abandon())?;
        let pipeline = Pipeline::new(part, None, length, RangeSet::new(), WriterChoice::Auto, self.pool());
        let then = Then::Finish { digest, replace };
        Ok(Begun::ready(Upload::prepare(pipeline, then, target.exists, receiving, (claim, slot))?))
    }

    fn pool(&self) -> SegmentPool {
        SegmentPool::new(&self.memory, None, 1)
    }

    fn slot(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Reply> {
        let slot = Arc::clone(&self.slots).try_acquire_owned();
        slot.map_err(|_| refusal::crowded())
    }
}

impl Append {
    /// Finds out whether the part follows what is there; returns the whole file's size.
    fn follows(&self, prior: Option<&Journal>, body: RequestBody) -> Result<Bytes, Reply> {
        let there = prior.map_or(Bytes::ZERO, prefix);
        if self.offset != there {
            return Err(refusal::elsewhere(there));
        }
        let size = match (prior.map(Journal::size), self.length) {
            (None, None) => return Err(Reply::text(400, "an upload begins with Upload-Length")),
            (Some(begun), Some(length)) if begun != length => {
                return Err(Reply::text(400, "the upload was begun with another Upload-Length"));
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

impl Begun {
    fn ready(upload: Upload) -> Self {
        Self::Ready(Box::new(upload))
    }
}

impl Target {
    /// Finds the directory below the root, and what has the name there.
    fn find(site: &Site, path: &TargetPath) -> Result<Self, Reply> {
        let Some((name, above)) = path.names().split_last() else {
            return Err(Reply::text(409, "the root is a directory; name a file"));
        };
        if path.has_trailing_slash() {
            return Err(Reply::text(409, "a name that ends in a slash is a directory's; name a file"));
        }
        if (path.is_hidden() && !site.hidden) || path.names().iter().any(is_partial) {
            return Err(Reply::text(403, "files of this name are not taken"));
        }
        let directory = site.root.directory(above).map_err(|error| refusal::directory(&error))?;
        // A link may lead out of the root, and what is no file is not replaced by one.
        let exists = match directory.look(OsStr::from_bytes(name), false) {
            Ok(there) => match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile => true,
                FileType::Directory => return Err(Reply::text(409, "there is a directory of this name")),
                _ => return Err(Reply::text(403, "what has this name is no file, and is not replaced")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(refusal::directory(&error)),
        };
        Ok(Self { directory, name: name.clone(), exists })
    }

    fn path(&self) -> PathBuf {
        self.directory.path_of(OsStr::from_bytes(&self.name))
    }

    fn may_be_replaced(&self, replace: bool) -> Result<(), Reply> {
        if self.exists && !replace {
            return Err(Reply::text(412, "there is a file of this name"));
        }
        Ok(())
    }

    fn open(&self, receiving: &Arc<Receiving>) -> Result<Held, OutputError> {
        let name = OsStr::from_bytes(&self.name);
        let failed = |source| OutputError::Create { path: self.path(), source };
        let part = PartFile::open_in(self.directory.try_clone().map_err(failed)?, name)?;
        let claim = receiving.claim(part.identity().map_err(failed)?);
        claim.map(|claim| Held { part, claim }).ok_or_else(|| OutputError::Busy(self.path()))
    }

    /// Opens the partial file for a part of an upload; where an older connection of the same upload is as good
    /// as dead, that one ends first: its client would otherwise wait until it is found out.
    fn open_for(&self, id: UploadId, receiving: &Arc<Receiving>) -> Result<Held, Unready> {
        let opened = match self.open(receiving) {
            Err(OutputError::Busy(_)) if self.end_silent(id, receiving) => return Err(Unready::Ending),
            // It may have ended just now.
            Err(OutputError::Busy(_)) => self.open(receiving),
            opened => opened,
        };
        Ok(opened?)
    }

    fn end_silent(&self, id: UploadId, receiving: &Receiving) -> bool {
        receiving.end_silent(&self.path(), |journal| is_of(journal, id))
    }

    /// Returns what is there of an upload; one that is under way is further than that by now.
    fn journal(&self, id: UploadId) -> Result<Journal, Reply> {
        let journal = part_file::journal_of(&self.directory, OsStr::from_bytes(&self.name));
        usable(journal, id)?.ok_or_else(refusal::no_upload)
    }

    /// Says how far an upload is.
    fn look(&self, id: UploadId, receiving: &Receiving) -> Result<Reply, Unready> {
        if self.end_silent(id, receiving) {
            // It commits what it has, and lets go of the file.
            return Err(Unready::Ending);
        }
        let journal = self.journal(id)?;
        let head = ReplyHead::new(204)
            .with(UPLOAD_OFFSET, &prefix(&journal).get().to_string())
            .with(UPLOAD_LENGTH, &journal.size().get().to_string())
            .with(UPLOAD_COMPLETE, upload_bool(false))
            .with("Cache-Control", "no-store");
        Ok(Reply::empty(head))
    }

    /// Forgets an upload.
    fn drop_upload(&self, id: UploadId, receiving: &Arc<Receiving>) -> Result<Reply, Unready> {
        self.journal(id)?;
        let held = self.open_for(id, receiving)?;
        // Whoever had the lock meanwhile may have finished it, or begun another.
        self.journal(id).inspect_err(|_| held.part.abandon())?;
        held.part.discard();
        Ok(Reply::empty(ReplyHead::new(204)))
    }
}

/// Makes the journal of an upload: its ID takes the place of the URL and of the entity tag.
fn journal(id: UploadId, size: Bytes) -> Result<Journal, Reply> {
    let (name, identity) = (url_of(id), identity_of(id));
    let identity = identity.ok_or_else(|| Reply::text(400, "the upload's name is no entity tag"))?;
    Ok(Journal::new(size, vec![JournalSource::new(&name, name.clone(), identity)], None))
}

fn url_of(id: UploadId) -> String {
    format!("upload:{id}")
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
        let own = journal(id, Bytes::new(9)).ok().unwrap();
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
