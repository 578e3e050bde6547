//! The journals of uploads: an upload is named by its ID and by the token that began it.

use longhaul_core::identity::Identity;
use longhaul_core::proto::http::{UploadId, Validator};
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use longhaul_engine::sink::journal::{Journal, JournalSource, SourceMatch, StoredJournal};

use crate::reply::Reply;

/// Separates the name of the token from the upload's URL in a journal.
const HOLDER: &str = ";token=";

/// Makes the journal of an upload, with its ID as the URL and the validator.
pub(crate) fn journal(id: UploadId, size: Bytes, holder: Option<&str>) -> Result<Journal, Reply> {
    let (name, identity) = (url_of(id), identity_of(id));
    let identity = identity.ok_or_else(|| Reply::text(400, "the upload's name is no entity tag"))?;
    let shown = holder.map_or_else(|| name.clone(), |holder| format!("{name}{HOLDER}{holder}"));
    Ok(Journal::new(size, vec![JournalSource::new(&name, shown, identity)], None))
}

/// Returns the name of the token that began an upload.
pub(crate) fn holder_of(journal: &Journal) -> Option<&str> {
    journal.sources.first().and_then(|source| source.url.split_once(HOLDER)).map(|(_, holder)| holder)
}

/// Returns the ID within the server of an upload; `None` for a download into the served directory.
pub(crate) fn id_of(journal: &Journal) -> Option<&str> {
    let url = journal.sources.first()?.url.strip_prefix(SCHEME)?;
    Some(url.split_once(HOLDER).map_or(url, |(id, _)| id))
}

/// What the URL of an upload begins with in a journal; that of a download begins with http, gsiftp
/// or the like.
const SCHEME: &str = "upload:";

/// Returns whether a journal is of an upload to a server, not of a download into the served
/// directory.
pub(crate) fn is_upload(journal: &Journal) -> bool {
    id_of(journal).is_some()
}

fn url_of(id: UploadId) -> String {
    format!("{SCHEME}{id}")
}

fn identity_of(id: UploadId) -> Option<Identity> {
    Validator::parse(&format!("\"{id}\"")).map(Identity::from)
}

/// Returns whether a journal is of this upload.
pub(crate) fn is_of(journal: &Journal, id: UploadId) -> bool {
    let identity = identity_of(id);
    journal.match_source(&url_of(id), journal.size, identity.as_ref(), None) == SourceMatch::Same
}

/// Returns the journal of this upload, where it is sound; a damaged one is logged.
pub(crate) fn usable(found: StoredJournal, id: UploadId) -> Option<Journal> {
    if let StoredJournal::Damaged { why } = &found {
        tracing::warn!(%id, "the journal of an upload is damaged: {why}");
    }
    found.sound().filter(|journal| is_of(journal, id))
}

/// Returns how many bytes are committed from the start on without a gap.
pub(crate) fn prefix(journal: &Journal) -> Bytes {
    let whole = ByteRange::with_len(0, journal.size);
    journal.committed.gaps(whole).first().map_or(journal.size, |gap| Bytes::new(gap.start()))
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
        let own = String::from_utf8(own.encode(&Default::default()).unwrap()).unwrap();
        let (_, rest) = own.split_once(r#""url_digest":""#).unwrap();
        let (url_digest, _) = rest.split_once('"').unwrap();
        let found = |text: String| {
            let journal = Journal::decode(text.as_bytes()).unwrap();
            usable(StoredJournal::Sound(journal), id)
        };
        assert_eq!(found(text(url_digest)).map(|journal| prefix(&journal)), Some(Bytes::new(4)));
        assert!(found(text(digest)).is_none(), "another upload's");
    }
}
