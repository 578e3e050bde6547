use std::fs;

use longhaul_core::identity::Identity;
use longhaul_core::proto::http::Validator;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::Bytes;
use rustix::io::Errno;

use super::*;
use crate::sink::journal::JournalSource;

fn open(target: &Path) -> Result<PartFile, OutputError> {
    PartFile::open_in(Directory::open(target.parent().unwrap()).unwrap(), target.file_name().unwrap())
}

/// Opens the partial file of `file` in a new directory; returns the path of `file`, too.
fn opened() -> (tempfile::TempDir, PathBuf, PartFile) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("file");
    let part = open(&target).unwrap();
    (dir, target, part)
}

fn finish(part: &PartFile) {
    assert!(part.finish(true).unwrap().warnings.is_empty());
}

fn entries(dir: &tempfile::TempDir) -> usize {
    fs::read_dir(dir.path()).unwrap().count()
}

fn journal(size: Bytes) -> Journal {
    let tag = Identity::from(Validator::parse("\"a\"").unwrap());
    Journal::new(size, vec![JournalSource::new("u", "u".into(), tag)], None)
}

#[test]
fn oversized_file_is_refused_before_the_first_byte_and_leaves_an_earlier_part_unchanged() {
    let (dir, _, part) = opened();
    for size in [Bytes::new(1 << 50), Bytes::new(u64::MAX)] {
        assert!(matches!(part.reserve(size), Err(OutputError::Reserve { .. })), "{size}");
    }
    part.reserve(Bytes::new(100)).unwrap();
    part.store(&journal(Bytes::new(100)), &[ByteRange::new(0, 10)].into_iter().collect()).unwrap();
    let before = part.journal().unwrap().sound();
    assert!(part.reserve(Bytes::new(1 << 50)).is_err());
    part.abandon();
    assert!(before.is_some() && part.journal().unwrap().sound() == before);
    part.discard();
    assert_eq!(entries(&dir), 0);
}

#[test]
fn only_own_files_are_removed() {
    let (_dir, target, first) = opened();
    finish(&first);
    let second = open(&target).unwrap();
    first.discard();
    assert!(second.path().exists() && second.identity().unwrap() != first.identity().unwrap());
    second.discard();
    assert!(!second.path().exists());
    let (size, ranges) = (Bytes::new(3), [ByteRange::new(0, 2)].into_iter().collect());
    let begin = || {
        let part = open(&target).unwrap();
        part.reserve(size).unwrap();
        part.store(&journal(size), &ranges).unwrap();
        part
    };
    let first = begin();
    fs::remove_file(first.path()).unwrap();
    // Another run uses the free name, and is interrupted.
    let second = begin();
    drop(second);
    first.discard();
    let resumed = open(&target).unwrap();
    assert_eq!(resumed.journal().unwrap().sound().unwrap().committed, ranges);
    // Another program creates a file under this name.
    fs::remove_file(resumed.path()).unwrap();
    fs::write(resumed.path(), "abc").unwrap();
    resumed.discard();
    assert_eq!(fs::read(resumed.path()).unwrap(), b"abc");
    assert!(!resumed.journal_path().exists());
}

#[test]
fn stray_and_incomplete_journals_are_removed() {
    let (dir, _, part) = opened();
    let directory = Directory::open(dir.path()).unwrap();
    part.store(&journal(Bytes::ZERO), &RangeSet::new()).unwrap();
    remove_stray_journal(&directory, OsStr::new("file"));
    assert!(part.journal_path().exists());
    fs::remove_file(part.path()).unwrap();
    remove_stray_journal(&directory, OsStr::new("file"));
    assert_eq!(entries(&dir), 0);
    let (dir, _, part) = opened();
    let half = dir.path().join("file.longhaul-journal~");
    let journal = journal(Bytes::ZERO);
    // A directory obstructs the rename.
    fs::create_dir(part.journal_path()).unwrap();
    assert!(part.store(&journal, &RangeSet::new()).is_err() && !half.exists());
    fs::remove_dir(part.journal_path()).unwrap();
    fs::write(&half, "{").unwrap();
    part.start_over().unwrap();
    assert!(!half.exists());
    fs::write(&half, "{").unwrap();
    finish(&part);
    assert!(!half.exists());
}

#[test]
fn journal_is_read_as_stored_and_only_with_its_file() {
    let (dir, _, part) = opened();
    let ranges: RangeSet = [ByteRange::new(0, 10), ByteRange::new(50, 100)].into_iter().collect();
    let journal = journal(Bytes::new(100));
    part.store(&journal, &ranges).unwrap();
    for length in [60, 101] {
        part.reserve(Bytes::new(length)).unwrap();
        let StoredJournal::Damaged { why } = part.journal().unwrap() else { panic!("{length} bytes") };
        assert!(why.contains("file.longhaul-journal") && why.contains(&length.to_string()), "{why}");
    }
    part.reserve(Bytes::new(100)).unwrap();
    let found = part.journal().unwrap();
    assert_eq!(found.clone().sound().unwrap().committed, ranges);
    let directory = Directory::open(dir.path()).unwrap();
    assert_eq!(journal_of(&directory, OsStr::new("file")).unwrap(), found);
    assert_eq!(entries(&dir), 2);
    part.discard();
    assert_eq!(journal_of(&directory, OsStr::new("file")).unwrap(), StoredJournal::Absent);
}

#[test]
fn longest_names_fit_and_a_pipe_under_the_temporary_name_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = ("x".repeat(254) + "1", "x".repeat(254) + "2");
    let first = open(&dir.path().join(&one)).unwrap();
    let second = open(&dir.path().join(&other)).unwrap();
    assert_ne!(first.path(), second.path());
    assert_eq!(second.finish(true).unwrap().path, dir.path().join(other));
    let dir = tempfile::tempdir().unwrap();
    let (pipe, mode) = (dir.path().join("file.longhaul-part"), rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(open(&dir.path().join("file")), Err(OutputError::NotAFile(path)) if path == pipe));
    assert!(pipe.exists());
}

#[test]
fn mode_is_that_of_the_replaced_file_or_the_umask() {
    use std::os::unix::fs::PermissionsExt;
    let (_dir, target, part) = opened();
    let mode = || fs::metadata(&target).unwrap().permissions().mode() & 0o7777;
    finish(&part);
    let fresh = mode();
    // No set-user-ID bit for downloaded content.
    for (before, after) in [(0o600, 0o600), (0o4751, 0o751), (0o444, 0o444)] {
        fs::set_permissions(&target, fs::Permissions::from_mode(before)).unwrap();
        finish(&open(&target).unwrap());
        assert_eq!(mode(), after, "{before:o}");
    }
    fs::remove_file(&target).unwrap();
    finish(&open(&target).unwrap());
    assert_eq!(mode(), fresh);
}

/// What others may have written is neither resumed nor written to; the file that replaces it is
/// this user's alone.
#[test]
fn only_what_this_user_alone_can_have_written_is_resumed() {
    use std::os::unix::fs::PermissionsExt;
    type Case<'c> = (&'c str, &'c dyn Fn(&Path));
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let part_of = |path: &Path| path.with_file_name("file.longhaul-part");
    let journal_of = |path: &Path| path.with_file_name("file.longhaul-journal");
    let give = |path: &Path| {
        let other = rustix::process::Uid::from_raw(1);
        rustix::fs::chown(path, Some(other), None).unwrap();
        chmod(path, 0o666);
    };
    let cases: [Case<'_>; 8] = [
        ("part writable by all", &|target| chmod(&part_of(target), 0o646)),
        ("part writable by the group", &|target| chmod(&part_of(target), 0o664)),
        ("part that is the complete file", &|target| {
            // As after a run that was killed between link and unlink.
            fs::hard_link(part_of(target), target).unwrap()
        }),
        ("journal writable by all", &|target| chmod(&journal_of(target), 0o666)),
        ("journal of two names", &|target| {
            fs::hard_link(journal_of(target), target.with_file_name("j")).unwrap()
        }),
        ("journal too large", &|target| {
            let journal = File::options().append(true).open(journal_of(target)).unwrap();
            journal.set_len((16 << 20) + 1).unwrap();
        }),
        ("part of another user", &|target| give(&part_of(target))),
        ("journal of another user", &|target| give(&journal_of(target))),
    ];
    let (size, ranges) = (Bytes::new(3), [ByteRange::new(0, 2)].into_iter().collect());
    let as_root = rustix::process::geteuid().is_root();
    for (what, change) in cases.into_iter().filter(|(what, _)| as_root || !what.contains("another user")) {
        let (dir, target, part) = opened();
        part.reserve(size).unwrap();
        part.store(&journal(size), &ranges).unwrap();
        drop(part);
        change(&target);
        let kept: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let before: Vec<_> = kept.iter().map(|path| File::open(path).unwrap()).collect();
        let part = open(&target).unwrap();
        assert_eq!(super::part_of(&target), part.path(), "{what}");
        assert_eq!(part.journal().unwrap().sound(), None, "{what}");
        part.file().set_len(5).unwrap();
        part.store(&journal(Bytes::new(5)), &ranges).unwrap();
        // A file of one name is overwritten only if it is this user's.
        let is_written = |file: &File| file.metadata().is_ok_and(|now| now.len() == 5);
        assert!(what.starts_with("journal") || !before.iter().any(is_written), "{what}");
        drop(part);
        // What was begun beside another user's file is resumed without it.
        if what.ends_with("user") {
            kept.iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        let part = open(&target).unwrap();
        assert!(part.journal().unwrap().sound().is_some(), "{what}");
        finish(&part);
        let found = fs::metadata(&target).unwrap();
        let expected = (rustix::process::geteuid().as_raw(), 0o644, 5);
        assert_eq!((found.uid(), found.permissions().mode() & 0o777, found.len()), expected, "{what}");
    }
}

/// The test's user may create files in a directory, but not list it.
#[test]
fn unreadable_directory_accepts_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o333)).unwrap();
    let target = dir.path().join("file");
    let path = target.clone();
    let work = move || {
        // For this thread only; root may read everything.
        let nobody = rustix::process::Uid::from_raw(65_534);
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_res_uid(None, Some(nobody), None).unwrap();
        }
        assert!(fs::read_dir(path.parent().unwrap()).is_err());
        let part = open(&path).unwrap();
        part.store(&journal(Bytes::ZERO), &RangeSet::new()).unwrap();
        part.sync_names().unwrap();
        assert!(part.finish(false).unwrap().warnings.is_empty());
    };
    std::thread::spawn(work).join().unwrap();
    assert!(target.exists());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn failed_directory_sync_is_a_warning() {
    let (dir, target, part) = opened();
    let finished = part.finish_with(true, || Err(Errno::IO.into())).unwrap();
    assert_eq!((finished.path, entries(&dir)), (target, 1));
    assert!(finished.warnings.len() == 1 && finished.warnings[0].contains("cannot be synced"));
}
