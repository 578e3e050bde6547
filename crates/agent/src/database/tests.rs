use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use super::*;
use crate::request::{Endpoints, TargetFile, TransferRequest};
use crate::transfer::{FileProgress, TransferFailure, TransferKind, TransferState};

fn fresh() -> (tempfile::TempDir, PathBuf, Database) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.db");
    let database = Database::open(&path, 0).unwrap().database;
    (dir, path, database)
}

pub(super) fn transfer(name: &str) -> NewTransfer {
    let urls = vec![format!("http://h/{name}")];
    let target = TargetFile { output: Some("/d/".into()), ..TargetFile::default() };
    let request = TransferRequest { target, ..TransferRequest::of_urls(urls) };
    let sealed = b"sealed".to_vec();
    NewTransfer { key: None, gid: None, state: TransferState::Queued, request, sealed, offered: false }
}

/// Creates a worker of a plan.
pub(super) fn worker(plan: &str) -> NewTransfer {
    let endpoints = Endpoints { plan: Some(plan.into()), ..Endpoints::default() };
    let request = TransferRequest { kind: TransferKind::Plan, endpoints, ..TransferRequest::default() };
    NewTransfer { request, ..transfer("") }
}

fn add(database: &mut Database, name: &str) -> i64 {
    database.add(&[transfer(name)], 1).unwrap()[0]
}

fn queued(database: &Database) -> Vec<String> {
    database.next_queued(100).unwrap().into_iter().map(|row| row.transfer.ends.name).collect()
}

#[test]
fn transfer_with_a_known_key_is_not_added_and_each_has_an_identifier_of_its_own() {
    let (_dir, _path, mut database) = fresh();
    let id = add(&mut database, "a");
    let keyed = NewTransfer { key: Some("k".to_owned()), ..transfer("b") };
    let first = database.add(&[keyed.clone(), transfer("c")], 1).unwrap();
    let next = first[1].cast_unsigned() + 2;
    let chosen = database.add(&[NewTransfer { gid: Some(next), ..transfer("d") }], 3).unwrap()[0];
    let other = add(&mut database, "e");
    let gid = |id: i64| database.get(id).unwrap().unwrap().transfer.gid;
    let of = |id| database.id_of_gid(u64::from_str_radix(&gid(id), 16).unwrap()).unwrap();
    assert!(other.cast_unsigned() == next && gid(chosen) == format!("{next:016x}"));
    assert_eq!([id, chosen, other].map(of), [id, chosen, other].map(Some));
    let again = database.add(&[keyed], 4).unwrap();
    assert_eq!((again[0], queued(&database).len()), (first[0], 5), "a known key");
}

#[test]
fn identifiers_of_all_bits_and_sizes_that_no_column_holds_are_stored() {
    let (_dir, _path, mut database) = fresh();
    for gid in [u64::MAX, u64::MAX - 1, 1 << 63] {
        let mut chosen = NewTransfer { gid: Some(gid), ..transfer("a") };
        chosen.request.tuning.limit_bps = Some(gid);
        let id = database.add(&[chosen], 1).unwrap()[0];
        assert_eq!(database.id_of_gid(gid).unwrap(), Some(id));
        let stored = database.get(id).unwrap().unwrap().transfer;
        assert_eq!(stored.gid, format!("{gid:016x}"));
    }
    assert_eq!(queued(&database).len(), 3);
}

#[test]
fn worker_of_a_plan_waits_while_another_one_runs() {
    let (_dir, _path, mut database) = fresh();
    let workers = ["/s/p", "/s/p", "/s/q"].map(worker);
    let ids = database.add(&workers, 1).unwrap();
    add(&mut database, "a");
    assert_eq!(queued(&database), ["p", "p", "q", "a"]);
    assert!(database.begin(ids[0], 1).unwrap());
    assert_eq!(queued(&database), ["q", "a"]);
    database.set_state(ids[0], TransferState::Paused, 2).unwrap();
    assert_eq!(queued(&database), ["p", "q", "a"]);
}

#[test]
fn priority_precedes_position_and_a_moved_transfer_takes_its_neighbours_priority() {
    let (_dir, _path, mut database) = fresh();
    let ids: Vec<_> = ["a", "b", "c", "d"].iter().map(|name| add(&mut database, name)).collect();
    database.patch(ids[2], Some(5), None).unwrap();
    assert_eq!(queued(&database), ["c", "a", "b", "d"]);
    database.place(ids[3], Some(ids[0])).unwrap();
    assert_eq!(queued(&database), ["c", "d", "a", "b"]);
    database.place(ids[3], Some(ids[2])).unwrap();
    assert_eq!(queued(&database), ["d", "c", "a", "b"]);
    assert!(!database.place(ids[3], Some(99)).unwrap(), "before one that is removed");
    assert!(database.place(ids[0], None).unwrap());
    assert_eq!(queued(&database), ["d", "c", "b", "a"]);
    // A position does not run out of numbers.
    for _ in 0..25 {
        database.place(ids[0], Some(ids[1])).unwrap();
        assert_eq!(queued(&database), ["d", "c", "a", "b"]);
        database.place(ids[1], Some(ids[0])).unwrap();
        assert_eq!(queued(&database), ["d", "c", "b", "a"]);
    }
}

#[test]
fn pages_contain_every_transfer_once_despite_additions() {
    let (_dir, _path, mut database) = fresh();
    let ids: Vec<_> = (0..25).map(|n| add(&mut database, &n.to_string())).collect();
    database.set_state(ids[3], TransferState::Done, 50).unwrap();
    database.set_state(ids[4], TransferState::Failed, 60).unwrap();
    assert!(database.begin(ids[20], 5).unwrap());
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = database.page(None, after, 10).unwrap();
        seen.extend(page.rows.iter().map(|row| row.transfer.id));
        after = page.next.map(|next| next.to_string().parse().unwrap());
        if seen.len() == 10 {
            assert_eq!((page.total, page.counts["queued"], page.counts["running"]), (25, 22, 1));
            database.remove(ids[0]).unwrap();
            let mut urgent = transfer("urgent");
            urgent.request.queue.priority = 9;
            database.add(&[urgent], 2).unwrap();
        }
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen[0], ids[20], "what runs comes first");
    assert_eq!(seen[seen.len() - 2..], [ids[4], ids[3]], "what ended last comes before what ended earlier");
    seen.sort_unstable();
    assert_eq!(seen, ids);
    let failed = database.page(Some(TransferState::Failed), None, 10).unwrap();
    assert_eq!((failed.total, failed.rows.len()), (1, 1));
    assert!("1.2.3".parse::<PageCursor>().is_err() && "a.b.c.d".parse::<PageCursor>().is_err());
}

#[test]
fn only_a_queued_transfer_starts_and_its_end_keeps_the_users_state_unless_the_file_is_complete() {
    let (_dir, _path, mut database) = fresh();
    let id = add(&mut database, "a");
    database.set_state(id, TransferState::Paused, 1).unwrap();
    assert!(!database.begin(id, 2).unwrap());
    database.requeue(id, TransferState::Queued).unwrap();
    assert!(database.begin(id, 3).unwrap() && !database.begin(id, 4).unwrap());
    assert_eq!(database.get(id).unwrap().unwrap().transfer.times.started, Some(3));
    let (_dir, _path, mut database) = fresh();
    let error = TransferFailure { message: "reset".to_owned(), exit_code: 75, file_exists: false };
    let progress = FileProgress { bytes: 7, ..FileProgress::default() };
    let end = RunEnd { progress, error: Some(error), retry_at: Some(99), ..RunEnd::default() };
    let id = add(&mut database, "a");
    database.begin(id, 1).unwrap();
    database.set_state(id, TransferState::Paused, 2).unwrap();
    database.end(id, TransferState::Failed, &end, 3).unwrap();
    let row = database.get(id).unwrap().unwrap();
    assert_eq!(
        (row.transfer.state, row.transfer.progress.bytes, row.retry_at),
        (TransferState::Paused, 7, None)
    );
    database.requeue(id, TransferState::Queued).unwrap();
    database.begin(id, 4).unwrap();
    // The answer to the first may have been lost.
    for attempts in [1, 1, 7] {
        let end = RunEnd { attempts, ..end.clone() };
        database.end(id, TransferState::Scheduled, &end, 5).unwrap();
        let row = database.get(id).unwrap().unwrap();
        assert_eq!((row.transfer.state, row.attempts, row.retry_at), (TransferState::Scheduled, 1, Some(99)));
    }
    database.set_state(id, TransferState::Cancelled, 6).unwrap();
    database.end(id, TransferState::Done, &RunEnd::default(), 7).unwrap();
    let row = database.get(id).unwrap().unwrap();
    assert_eq!((row.transfer.state, row.transfer.times.ended), (TransferState::Done, Some(7)));
}

#[test]
fn database_of_a_newer_version_stays() {
    let (_dir, path, database) = fresh();
    database.connection.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    assert!(matches!(Database::open(&path, 0), Err(DatabaseError::Newer { found: 99, .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn damaged_or_foreign_database_is_moved_aside_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.db");
    fs::write(&path, [0xff; 64 * 1024]).unwrap();
    let mut opened = Database::open(&path, 1234).unwrap();
    let (aside, why) = opened.damaged.unwrap();
    assert_eq!(fs::read(&aside).unwrap(), [0xff; 64 * 1024]);
    assert!(aside.to_string_lossy().contains("queue.db.damaged-1234") && !why.is_empty());
    add(&mut opened.database, "a");
    let (_dir, path, mut database) = fresh();
    let many: Vec<_> = (0..500).map(|n| transfer(&n.to_string())).collect();
    database.add(&many, 1).unwrap();
    drop(database);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 16 * 1024].fill(0xaa);
    fs::write(&path, &bytes).unwrap();
    let opened = Database::open(&path, 1).unwrap();
    assert!(opened.damaged.is_some());
    assert_eq!(opened.database.next_queued(1).unwrap().len(), 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("queue.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE precious (x); PRAGMA user_version = 3").unwrap();
    drop(other);
    let opened = Database::open(&path, 0).unwrap();
    let (aside, _) = opened.damaged.unwrap();
    let kept = Connection::open(aside).unwrap();
    assert_eq!(kept.query_row("SELECT count(*) FROM precious", [], |row| row.get(0)), Ok(0));
}

#[test]
fn transaction_of_a_panic_is_rolled_back() {
    let (_dir, _path, mut database) = fresh();
    let change = |database: &mut Database| -> Result<(), DatabaseError> {
        database.set_state(1, TransferState::Cancelled, 1)?;
        panic!("within a transaction");
    };
    let id = add(&mut database, "a");
    let panicked = catch_unwind(AssertUnwindSafe(|| database.atomically(change)));
    assert!(panicked.is_err() && id == 1);
    assert_eq!(queued(&database), ["a"]);
    add(&mut database, "b");
    assert_eq!(queued(&database), ["a", "b"], "the next transaction is one of its own");
}

#[test]
fn only_the_last_lease_of_this_agent_is_released_and_stores_what_its_run_did() {
    let (_dir, _path, mut database) = fresh();
    let id = add(&mut database, "a");
    assert!(database.begin(id, 1).unwrap());
    let state = |database: &Database| database.get(id).unwrap().unwrap().transfer.state;
    let lease = |owner: Option<&str>, epoch: i64| {
        let update = "UPDATE transfers SET owner = ?1, epoch = ?2";
        database.connection.execute(update, (owner, epoch)).unwrap();
    };
    let part = PartIdentity { target: "/d/f".into(), device: 1, inode: 1, born: None };
    let end = RunEnd { epoch: 1, ..RunEnd::default() };
    for (owner, epoch) in [(None, 2), (Some("other/agent"), 1)] {
        lease(owner, epoch);
        database.release(id, 1).unwrap();
        assert!(!database.set_part((id, 1), &part, None).unwrap());
        assert!(!database.end(id, TransferState::Done, &end, 1).unwrap());
        assert_eq!(state(&database), TransferState::Running, "{owner:?} {epoch}");
    }
    lease(None, 1);
    assert!(database.set_part((id, 1), &part, None).unwrap());
    database.release(id, 1).unwrap();
    assert_eq!(state(&database), TransferState::Queued);
}
