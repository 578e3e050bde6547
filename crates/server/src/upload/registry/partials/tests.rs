use std::time::SystemTime;

use longhaul_core::identity::Identity;
use longhaul_core::ranges::RangeSet;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::journal::{Journal, JournalSource};

use super::scan::list;
use super::*;
use crate::Limits;
use crate::paths::disks::Disks;

/// Makes a partial file of 10 000 bytes, with a journal of a file from `url`.
fn pause(directory: &Path, name: &str, url: &str) {
    let identity = Identity::from(longhaul_core::proto::http::Validator::parse("\"tag\"").unwrap());
    let source = JournalSource::new(url, url.to_owned(), identity);
    let journal = Journal::new(Bytes::new(10_000), vec![source], None);
    std::fs::write(directory.join(format!("{name}.longhaul-part")), [7; 10_000]).unwrap();
    let text = journal.encode(&RangeSet::new()).unwrap();
    std::fs::write(directory.join(format!("{name}.longhaul-journal")), text).unwrap();
}

async fn scan(partials: &PartialUploads) {
    let hung = partials.scan(&Disks::new(&partials.root, &Limits::default()), vec![Vec::new()]).await;
    assert!(hung.is_empty() && partials.counts_all());
}

fn admit(partials: &PartialUploads, part: &Path, size: Bytes) -> Result<(), OverQuota> {
    partials.admit(part, size, &Grant::default())
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn partial_files_of_uploads_are_found_and_other_files_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    std::os::unix::fs::symlink(dir.path(), below.join("round")).unwrap();
    pause(&below, "f", "upload:1;token=ann");
    pause(&below, "download", "https://host/download");
    for name in ["f", "g.longhaul-part"] {
        std::fs::write(below.join(name), [7; 10_000]).unwrap();
    }
    let partials = PartialUploads::new(dir.path(), Some(Bytes::new(100)), None);
    scan(&partials).await;
    let holder = |(path, part): (&PathBuf, &KnownPart)| (path.clone(), part.holder.clone());
    let known: Vec<_> = partials.known.lock().parts.iter().map(holder).collect();
    assert_eq!(known, [(below.join("f.longhaul-part"), Some("ann".into()))]);
    assert!(partials.used(None) >= Bytes::new(10_000) && partials.await_scan(&Grant::default()).await);
    assert!(list(&below, 0).uploads.is_empty() && list(&dir.path().join("none"), 9).uploads.is_empty());
}

#[tokio::test]
async fn quota_counts_partial_files_once_the_scan_has_ended_until_they_are_complete_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let quota = |quota| PartialUploads::new(dir.path(), quota, None);
    let partials = quota(Some(Bytes::mib(100)));
    let waits = timeout(Duration::from_millis(50), partials.await_scan(&Grant::default())).await;
    assert!(waits.is_err(), "it waits");
    scan(&partials).await;
    assert!(partials.await_scan(&Grant::default()).await);
    assert!(quota(None).await_scan(&Grant::default()).await);
    let dir = tempfile::tempdir().unwrap();
    let partials = Arc::new(PartialUploads::new(dir.path(), Some(Bytes::mib(100)), None));
    let part = |name: &str| dir.path().join(name);
    for name in ["a.longhaul-part", "b.longhaul-part"] {
        std::fs::write(part(name), "").unwrap();
        assert!(admit(&partials, &part(name), Bytes::mib(50)).is_ok());
    }
    assert!(admit(&partials, &part("c.longhaul-part"), Bytes::mib(1)).is_err());
    assert!(admit(&partials, &part("b.longhaul-part"), Bytes::mib(50)).is_ok(), "it is counted once");
    std::fs::remove_file(part("a.longhaul-part")).unwrap();
    partials.check(&Disks::new(dir.path(), &Limits::default()), &Arc::default(), SystemTime::now()).await;
    assert!(admit(&partials, &part("c.longhaul-part"), Bytes::mib(51)).is_err());
    assert!(admit(&partials, &part("c.longhaul-part"), Bytes::mib(50)).is_ok());
    let counted = partials.forget(&part("b.longhaul-part"));
    assert_eq!(partials.used(None), Bytes::mib(50));
    partials.restore(&part("b.longhaul-part"), counted);
    assert_eq!(partials.used(None), Bytes::mib(100));
}

#[tokio::test]
async fn expired_upload_is_deleted_unless_it_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let (second, disks) = (Duration::from_secs(1), Disks::new(dir.path(), &Limits::default()));
    let partials = Arc::new(PartialUploads::new(dir.path(), None, Some(10 * second)));
    for name in ["f", "g"] {
        pause(dir.path(), name, "upload:1");
    }
    pause(dir.path(), "download", "https://host/download");
    std::fs::write(dir.path().join("h"), "x").unwrap();
    // A time of modification is the client's to choose.
    let part = std::fs::File::options().write(true).open(dir.path().join("f.longhaul-part"));
    part.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    scan(&partials).await;
    let (active, now) = (Arc::default(), SystemTime::now());
    partials.check(&disks, &active, now + 5 * second).await;
    assert_eq!(names(dir.path()).len(), 7);
    let held = PartFile::open_in(Directory::open(dir.path()).unwrap(), OsStr::new("g")).unwrap();
    partials.check(&disks, &active, now + 20 * second).await;
    let download = ["download.longhaul-journal", "download.longhaul-part"];
    let left = [&download[..], &["g.longhaul-journal", "g.longhaul-part", "h"]].concat();
    assert_eq!(names(dir.path()), left);
    drop(held);
    partials.check(&disks, &active, now + 20 * second).await;
    assert_eq!(names(dir.path()), [&download[..], &["h"]].concat());
    assert_eq!(partials.used(None), Bytes::ZERO);
    // A download takes the place of an upload.
    let part = dir.path().join("f.longhaul-part");
    assert!(admit(&partials, &part, Bytes::new(10)).is_ok());
    pause(dir.path(), "f", "https://host/f");
    partials.check(&disks, &active, SystemTime::now() + 20 * second).await;
    assert!(part.exists());
}

#[test]
fn token_takes_no_more_than_its_own_quota() {
    let partials = PartialUploads::new(Path::new("/"), Some(Bytes::mib(100)), None);
    let grant =
        |name: &str| Grant { holder: Some(name.into()), quota: Some(Bytes::mib(60)), ..Grant::default() };
    let admit =
        |name: &str, size: u64, token: &str| partials.admit(Path::new(name), Bytes::mib(size), &grant(token));
    assert_eq!(admit("/a", 40, "ann"), Ok(()));
    assert_eq!(admit("/b", 30, "ann"), Err(OverQuota::OfToken));
    assert_eq!(admit("/b", 50, "bob"), Ok(()));
    assert_eq!(admit("/c", 20, "ann"), Err(OverQuota::OfAll));
    assert_eq!(partials.grow(Path::new("/b"), Bytes::mib(61)), Err(OverQuota::OfAll));
    partials.forget(Path::new("/a"));
    assert_eq!(partials.grow(Path::new("/b"), Bytes::mib(61)), Err(OverQuota::OfToken));
    assert_eq!(partials.grow(Path::new("/b"), Bytes::mib(58)), Ok(()));
    // Each takes two inodes.
    let small = ["/d", "/e", "/f"].map(|name| partials.admit(Path::new(name), Bytes::new(2), &grant("bob")));
    assert_eq!(small, [Ok(()), Ok(()), Err(OverQuota::OfToken)]);
    // Without a quota, too, there are not endlessly many.
    let partials = PartialUploads::new(Path::new("/"), None, None);
    let names = (0..MAX_UNFINISHED).map(|number| format!("/{number}"));
    names.for_each(|name| partials.known.lock().insert(Path::new(&name), Bytes::new(2), (None, None)));
    assert_eq!(super::tests::admit(&partials, Path::new("/0"), Bytes::new(3)), Ok(()));
    assert_eq!(super::tests::admit(&partials, Path::new("/x"), Bytes::new(2)), Err(OverQuota::TooMany));
}
