use std::fs;

use super::admission::promote;
use super::recovery::recover;
use super::*;
use crate::database::PartIdentity;
use crate::paths::AgentPaths;
use crate::request::{QueueOptions, TargetFile, TransferRequest};
use crate::scope::Scope;

/// A queue without a runner, so that nothing is fetched.
pub(crate) fn queue() -> (tempfile::TempDir, Arc<Queue>) {
    let dir = tempfile::tempdir().unwrap();
    let paths = AgentPaths { state: dir.path().join("state"), runtime: dir.path().join("run") };
    paths.make().unwrap();
    let queue = Arc::new(Queue::open(paths, |_| 1, None).unwrap());
    (dir, queue)
}

fn request(at: Option<i64>) -> TransferRequest {
    let queue = QueueOptions { at, ..QueueOptions::default() };
    TransferRequest { queue, ..TransferRequest::of_urls(vec!["http://127.0.0.1:9/f".to_owned()]) }
}

/// Adds a transfer that a killed agent had started, with this partial file.
pub(crate) fn begun(queue: &Queue, directory: &std::path::Path, name: &str) -> (i64, std::path::PathBuf) {
    let request = TransferRequest {
        target: TargetFile { output: Some(directory.join(name)), ..TargetFile::default() },
        ..TransferRequest::of_urls(vec![format!("http://127.0.0.1:9/{name}")])
    };
    let id = queue.add(vec![request], Scope::All).unwrap()[0].id;
    let (part, target) = (directory.join(format!("{name}.longhaul-part")), directory.join(name));
    fs::write(&part, "content").unwrap();
    let identity = PartIdentity::of(&part, &target).unwrap();
    queue.database(|database| {
        assert!(database.begin(id, 1).unwrap());
        database.set_part((id, 0), &identity, Some(7)).unwrap();
    });
    (id, part)
}

#[test]
fn complete_partial_and_other_files_are_told_apart_after_a_kill() {
    use TransferState::{Done, Queued};
    let (dir, queue) = queue();
    let at = |name: &str| dir.path().join(name);
    let names = ["renamed", "linked", "partial", "other"];
    let begun = names.map(|name| begun(&queue, dir.path(), name));
    fs::rename(&begun[0].1, at("renamed")).unwrap();
    fs::write(at("renamed.longhaul-journal"), "").unwrap();
    fs::hard_link(&begun[1].1, at("linked")).unwrap();
    fs::write(at("other"), "content").unwrap();
    recover(&queue).unwrap();
    let found = begun.each_ref().map(|(id, _)| queue.transfer(*id).unwrap());
    assert_eq!(found.each_ref().map(|transfer| transfer.state), [Done, Done, Queued, Queued]);
    assert!(found[..2].iter().all(|transfer| transfer.progress.bytes == 7), "{found:?}");
    assert_eq!(names.map(|name| at(name).exists()), [true, true, false, true]);
    assert!(!at("renamed.longhaul-journal").exists() && !begun[1].1.exists(), "leftovers are removed");
    assert_eq!(fs::read(at("other")).unwrap(), b"content");
}

#[test]
fn run_of_a_file_that_an_earlier_one_has_completed_fetches_nothing() {
    let (dir, queue) = queue();
    let (id, part) = begun(&queue, dir.path(), "f");
    fs::rename(part, dir.path().join("f")).unwrap();
    let row = queue.row(id).unwrap();
    let live = Arc::new(Live::new(&row.transfer, row.epoch, queue.runs.limit.clone()));
    assert!(queue.runs.insert(Arc::clone(&live)));
    run::run(&queue, &live, &row);
    let found = queue.transfer(id).unwrap();
    assert_eq!((found.state, found.progress.bytes), (TransferState::Done, 7));
    assert!(queue.runs.get(id).is_none() && !queue.record(id).exists());
}

#[test]
fn retry_is_due_after_the_clock_is_set_back_but_a_requested_time_is_not() {
    let (_dir, queue) = queue();
    let now = unix_now();
    let added = queue.add(vec![request(None), request(Some(now + 1_000_000))], Scope::All).unwrap();
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
    let id = queue.add(vec![request(None)], Scope::All).unwrap()[0].id;
    queue.stop();
    assert!(start_run(&queue, queue.row(id).unwrap()).unwrap().is_none());
    assert!(queue.runs.get(id).is_none());
    assert_eq!(queue.transfer(id).unwrap().state, TransferState::Queued);
}

#[test]
fn run_ends_before_its_lease_while_the_runner_waits_for_the_database() {
    let (_dir, mut queue) = queue();
    let lease = Duration::from_millis(300);
    Arc::get_mut(&mut queue).unwrap().farm =
        Some(Farm::new("postgres://db/farm".to_owned(), "here".to_owned(), lease));
    let id = queue.add(vec![request(None)], Scope::All).unwrap()[0].id;
    let live = Arc::new(Live::new(&queue.transfer(id).unwrap(), 1, queue.runs.limit.clone()));
    assert!(queue.runs.insert(Arc::clone(&live)));
    farm_runs::watch_leases(&queue).unwrap();
    queue.database(|_| assert!(live.cancel.sleep(Duration::from_secs(60))));
}
