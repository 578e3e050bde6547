use std::fs;

use super::*;
use crate::database::PartIdentity;
use crate::paths::Paths;
use crate::request::TransferRequest;

/// A queue without a runner, so that nothing is fetched.
pub(crate) fn queue() -> (tempfile::TempDir, Arc<Queue>) {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths { state: dir.path().join("state"), runtime: dir.path().join("run") };
    paths.make().unwrap();
    let queue = Arc::new(Queue::open(paths).unwrap());
    (dir, queue)
}

fn request(at: Option<i64>) -> TransferRequest {
    TransferRequest { urls: vec!["http://127.0.0.1:9/f".to_owned()], at, ..TransferRequest::default() }
}

/// Adds a transfer that a killed agent had started, with this partial file.
fn begun(queue: &Queue, directory: &std::path::Path, name: &str) -> (i64, std::path::PathBuf) {
    let request = TransferRequest {
        urls: vec![format!("http://127.0.0.1:9/{name}")],
        output: Some(directory.join(name)),
        ..TransferRequest::default()
    };
    let id = queue.add(vec![request]).unwrap()[0].id;
    let (part, target) = (directory.join(format!("{name}.longhaul-part")), directory.join(name));
    fs::write(&part, "content").unwrap();
    let identity = PartIdentity::of(&part, &target).unwrap();
    queue.database(|database| {
        assert!(database.begin(id, 1).unwrap());
        database.set_part(id, &identity, Some(7)).unwrap();
    });
    (id, part)
}

#[test]
fn file_renamed_or_linked_before_the_kill_is_done_and_its_leftovers_are_removed() {
    let (dir, queue) = queue();
    let (renamed, part) = begun(&queue, dir.path(), "f");
    fs::rename(&part, dir.path().join("f")).unwrap();
    fs::write(dir.path().join("f.longhaul-journal"), "").unwrap();
    let (linked, part) = begun(&queue, dir.path(), "g");
    fs::hard_link(&part, dir.path().join("g")).unwrap();
    recover(&queue).unwrap();
    for (id, name) in [(renamed, "f"), (linked, "g")] {
        let transfer = queue.transfer(id).unwrap();
        assert_eq!((transfer.state, transfer.bytes), (TransferState::Done, 7), "{name}");
        assert!(dir.path().join(name).exists());
    }
    assert!(!dir.path().join("f.longhaul-journal").exists() && !part.exists());
}

#[test]
fn partial_file_is_requeued_and_another_file_is_not_mistaken_for_it() {
    let (dir, queue) = queue();
    let (unfinished, _) = begun(&queue, dir.path(), "a");
    let (other, _) = begun(&queue, dir.path(), "b");
    fs::write(dir.path().join("b"), "content").unwrap();
    recover(&queue).unwrap();
    assert_eq!(queue.transfer(unfinished).unwrap().state, TransferState::Queued);
    assert_eq!(queue.transfer(other).unwrap().state, TransferState::Queued);
    assert_eq!(fs::read(dir.path().join("b")).unwrap(), b"content");
}

#[test]
fn retry_is_due_after_the_clock_is_set_back_but_a_requested_time_is_not() {
    let (_dir, queue) = queue();
    let now = unix_now();
    let added = queue.add(vec![request(None), request(Some(now + 1_000_000))]).unwrap();
    let ids: Vec<_> = added.iter().map(|transfer| transfer.id).collect();
    let end = crate::database::RunEnd { retry_at: Some(now + 300), ..Default::default() };
    queue.database(|database| {
        assert!(database.begin(ids[0], now).unwrap());
        database.end(ids[0], TransferState::Scheduled, &end, now).unwrap();
    });
    let state = |id| queue.transfer(id).unwrap().state;
    assert!(promote(&queue, now).unwrap().is_some());
    assert_eq!((state(ids[0]), state(ids[1])), (TransferState::Scheduled, TransferState::Scheduled));
    // The clock is set back by a year.
    promote(&queue, now - 365 * 86_400).unwrap();
    assert_eq!((state(ids[0]), state(ids[1])), (TransferState::Queued, TransferState::Scheduled));
    // The clock is set far ahead.
    promote(&queue, now + 2_000_000).unwrap();
    assert_eq!(state(ids[1]), TransferState::Queued);
}

#[test]
fn nothing_starts_while_the_agent_stops() {
    let (_dir, queue) = queue();
    let id = queue.add(vec![request(None)]).unwrap()[0].id;
    queue.stop();
    assert!(start_run(&queue, queue.row(id).unwrap()).unwrap().is_none());
    assert!(queue.live(id).is_none());
    assert_eq!(queue.transfer(id).unwrap().state, TransferState::Queued);
}
