//! Deletes the partial files of a transfer that is removed from the list.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::StoredJournal;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::sink::part_file::{PartFile, journal_of};
use longhaul_engine::sink::part_names::target_of;
use longhaul_engine::source::http::SafeUrl;
use longhaul_sys::if_exists::if_exists;
use url::Url;

use crate::database::TransferRow;
use crate::error::QueueError;
use crate::queue::Queue;
use crate::transfer::{TransferKind, TransferState};

/// The transfer that can resume a partial file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileClaim {
    Ours,
    /// No transfer: the file has no usable journal.
    None,
    Other,
}

impl Queue {
    /// Removes the partial files of an ended transfer, and their journals.
    ///
    /// # Errors
    /// [`QueueError::PartialFile`] if another program writes one of them, one cannot be removed, or
    /// only another host of the farm sees them.
    pub(crate) fn remove_partial_files(&self, row: &TransferRow) -> Result<(), QueueError> {
        let failed = |error: OutputError| QueueError::PartialFile(error.to_string());
        if let Some(part) = &row.part {
            let Some(directory) = part.target.parent() else { return Ok(()) };
            let is_found = Cell::new(false);
            // The file is known by its inode: its name has a user's number where another user had
            // one of the name.
            let claim = |path: &Path, _: &Directory, _: &OsStr| match row.has_file_at(path) {
                true => {
                    is_found.set(true);
                    FileClaim::Ours
                }
                false => FileClaim::Other,
            };
            remove_in(directory, Path::new(""), &claim).map_err(failed)?;
            return if is_found.get() { Ok(()) } else { self.require_own_run(row, &part.target) };
        }
        let Ok(request) = self.request(row.transfer.id) else { return Ok(()) };
        // The directory of an upload is the source.
        if request.kind != TransferKind::Tree || !request.endpoints.paths.is_empty() {
            return Ok(());
        }
        let url = request.first_url();
        let Some((root, url)) = request.target.output.zip(url) else { return Ok(()) };
        if !root.exists() {
            return self.require_own_run(row, &root);
        }
        remove_below(&root, &url).map_err(failed)
    }

    /// Refuses to remove files that are not seen here if another host has run the transfer: they
    /// may be there.
    fn require_own_run(&self, row: &TransferRow, path: &Path) -> Result<(), QueueError> {
        match self.other_host(&row.transfer) {
            Some(host) if row.transfer.state != TransferState::Done => {
                let (id, path) = (row.transfer.id, path.display());
                let why = format!(
                    "host {host} has run the transfer, and its files at {path} are not seen here: use longhaul queue remove --files \
                     {id} there"
                );
                Err(QueueError::PartialFile(why))
            }
            _ => Ok(()),
        }
    }
}

/// Removes the partial files below `root` whose journals name a source below `url`, and those
/// without a journal.
fn remove_below(root: &Path, url: &Url) -> Result<(), OutputError> {
    let url = SafeUrl::of(url).to_string();
    let url = url.trim_end_matches('/');
    let is_below = |source: &str| source.strip_prefix(url).is_some_and(|rest| rest.starts_with('/'));
    let claim = |_: &Path, directory: &Directory, target: &OsStr| match journal_of(directory, target) {
        Ok(StoredJournal::Absent | StoredJournal::Damaged { .. }) => FileClaim::None,
        Ok(StoredJournal::Sound(journal)) if journal.sources.iter().any(|source| is_below(&source.url)) => {
            FileClaim::Ours
        }
        _ => FileClaim::Other,
    };
    let mut unread = vec![PathBuf::new()];
    while let Some(path) = unread.pop() {
        unread.extend(remove_in(root, &path, &claim)?);
    }
    Ok(())
}

/// Removes the partial files of a transfer in the directory `path` below `root`; returns the
/// directories in it.
fn remove_in(
    root: &Path,
    path: &Path,
    claim: &impl Fn(&Path, &Directory, &OsStr) -> FileClaim,
) -> Result<Vec<PathBuf>, OutputError> {
    let shown = root.join(path);
    let failed = |source| OutputError::Write { operation: "read", path: shown.clone(), source };
    let Some(entries) = if_exists(fs::read_dir(&shown)).map_err(failed)? else { return Ok(Vec::new()) };
    let open = || Directory::open(root).and_then(|root| root.beneath(path)).map_err(failed);
    let directory = open()?;
    let mut below = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below.push(path.join(&name));
        }
        let Some(target) = target_of(name.as_bytes()).map(OsStr::from_bytes) else { continue };
        let claim = || claim(&entry.path(), &directory, target);
        match claim() {
            FileClaim::Ours => {
                let part = PartFile::open_existing_in(open()?, target)?;
                // It may have been replaced before it was locked.
                if claim() == FileClaim::Ours {
                    part.discard();
                }
                if claim() == FileClaim::Ours {
                    let (path, source) = (entry.path(), io::ErrorKind::PermissionDenied.into());
                    return Err(OutputError::Write { operation: "remove", path, source });
                }
            }
            // One that is locked has just begun.
            FileClaim::None => {
                let opened = PartFile::open_existing_in(open()?, target);
                opened.iter().for_each(PartFile::abandon);
            }
            FileClaim::Other => {}
        }
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use longhaul_core::identity::Identity;
    use longhaul_core::ranges::RangeSet;
    use longhaul_core::units::Bytes;
    use longhaul_engine::sink::journal::{Journal, JournalSource};

    use super::*;
    use crate::request::{TargetFile, TransferRequest};
    use crate::runner::tests::{begun, queue};
    use crate::scope::Scope;

    fn part(directory: &Path, name: &str, source: Option<&str>) -> PartFile {
        let part = PartFile::open_in(Directory::open(directory).unwrap(), name.as_ref()).unwrap();
        if let Some(url) = source {
            let sources = vec![JournalSource::new(url, url.to_owned(), Identity::AssumedUnchanged)];
            part.store(&Journal::new(Bytes::ZERO, sources, None), &RangeSet::new()).unwrap();
        }
        part
    }

    #[test]
    fn partial_files_of_the_transfer_are_removed_in_all_directories_and_no_others() {
        let (dir, queue) = queue();
        let root = dir.path().join("tree");
        fs::create_dir_all(root.join("sub")).unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("link")).unwrap();
        let request = TransferRequest {
            kind: TransferKind::Tree,
            target: TargetFile { output: Some(root.clone()), ..TargetFile::default() },
            ..TransferRequest::of_urls(vec!["http://user:secret@h/tree/".to_owned()])
        };
        let tree = queue.add(vec![request], Scope::All).unwrap()[0].id;
        for (directory, name, source) in [
            ("tree", "a", Some("http://h/tree/a")),
            ("tree/sub", "b", Some("http://h/tree/sub/b")),
            ("tree/sub", "no journal", None),
            ("tree", "other", Some("http://h/trees/a")),
            ("", "beside", Some("http://h/tree/beside")),
        ] {
            part(&dir.path().join(directory), name, source);
        }
        let _locked = part(&root, "locked", None);
        fs::write(root.join("complete"), "").unwrap();
        let (file, path) = begun(&queue, &root, "f");
        let numbered = root.join(format!("f.longhaul-{}.longhaul-part", rustix::process::geteuid().as_raw()));
        fs::rename(path, &numbered).unwrap();
        queue.cancel(file).unwrap();
        queue.remove(file, true).unwrap();
        assert!(!numbered.exists());
        queue.cancel(tree).unwrap();
        queue.remove(tree, true).unwrap();
        let names = |path: &Path| {
            let entries = fs::read_dir(path).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let left = [
            "complete",
            "link",
            "locked.longhaul-part",
            "other.longhaul-journal",
            "other.longhaul-part",
            "sub",
        ];
        assert_eq!(names(&root), left);
        assert_eq!(names(&root.join("sub")), [""; 0]);
        assert!(dir.path().join("beside.longhaul-part").exists());
    }
}
