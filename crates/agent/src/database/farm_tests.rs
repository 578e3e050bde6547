//! The statements of a farm, on a real PostgreSQL.

use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Output;
use std::time::{Duration, Instant};

use longhaul_core::failure::FailureKind;
use parking_lot::Mutex;

use super::lease::ClaimedTransfer;
use super::tests::{transfer, worker};
use super::*;
use crate::transfer::{FileProgress, TransferFailure, TransferState};
use postgres::Postgres;

#[allow(dead_code, reason = "the tests of the command line use all of it")]
#[path = "../../../cli/tests/support/postgres.rs"]
mod postgres;

/// The lease of the agents.
const LEASE: Duration = Duration::from_secs(30);

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "cannot run: {why}");
    println!("skipped: {why}");
}

/// A database, and the directory of its agents.
struct TestFarm {
    postgres: Postgres,
    dir: tempfile::TempDir,
}

impl TestFarm {
    fn start() -> Option<Self> {
        Some(Self { postgres: Postgres::start()?, dir: tempfile::tempdir().unwrap() })
    }

    /// Returns the database of an agent of a host.
    fn agent(&self, host: &str, lease: Duration) -> Database {
        self.agent_of(&self.postgres.url("farm"), host, lease)
    }

    fn agent_of(&self, url: &str, host: &str, lease: Duration) -> Database {
        let path = self.dir.path().join(host);
        let mut database = Database::open(&path, 0).unwrap().database;
        let address = FarmAddress::parse(url, lease).unwrap();
        let owner = format!("{host}/agent");
        let (farm, _) = FarmDatabase::open(&address, owner, &self.dir.path().join("key")).unwrap();
        database.join(farm);
        database
    }

    /// Ends the connections of all agents.
    fn cut(&self) {
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'longhaul'";
        self.postgres.sql(end);
    }
}

fn ids(claimed: &[ClaimedTransfer]) -> Vec<i64> {
    claimed.iter().map(|claimed| claimed.id).collect()
}

fn add(database: &mut Database, count: usize) -> Vec<i64> {
    let transfers: Vec<_> = (0..count).map(|number| transfer(&number.to_string())).collect();
    database.add(&transfers, 1).unwrap()
}

#[test]
fn each_transfer_has_one_lease_and_an_earlier_one_changes_nothing() {
    let Some(farm) = TestFarm::start() else { return };
    let (mut one, mut two) = (farm.agent("one", LEASE), farm.agent("two", LEASE));
    let all = add(&mut one, 10);
    let first = two.claim(3, 1, LEASE).unwrap();
    let mut claimed = [ids(&first), ids(&one.claim(100, 1, LEASE).unwrap())];
    claimed.iter_mut().for_each(|ids| ids.sort_unstable());
    assert_eq!(claimed, [all[..3].to_owned(), all[3..].to_owned()], "the most urgent, and the others");

    // A lease expires by the database's clock, and another agent gets the transfer.
    let id = all[0];
    let expire = "UPDATE longhaul.transfers SET lease_until = 1 WHERE id = ";
    farm.postgres.sql(&format!("{expire}{id}"));
    assert_eq!(one.expire().unwrap(), 1);
    let second = one.claim(1, 2, LEASE).unwrap();
    assert_eq!((ids(&second), second[0].epoch, first[0].epoch), (vec![id], 2, 1));
    let progress = FileProgress { bytes: 7, ..FileProgress::default() };
    let end = RunEnd { epoch: 1, progress, attempts: 5, ..RunEnd::default() };
    assert!(!two.end(id, TransferState::Failed, &end, 3).unwrap(), "the end of an earlier lease");
    two.release(id, 1).unwrap();
    two.release(id, 2).unwrap();
    assert_eq!((two.renew(LEASE).unwrap().len(), one.held().unwrap().len()), (2, 8));
    let row = one.get(id).unwrap().unwrap();
    assert_eq!((row.transfer.state, row.transfer.progress.bytes, row.epoch), (TransferState::Running, 0, 2));

    // The end of the last one counts once, even if it is repeated because its answer was lost.
    let end = RunEnd { epoch: 2, attempts: 1, busy_retries: 1, retry_at: Some(9), ..RunEnd::default() };
    for _ in 0..2 {
        assert!(one.end(id, TransferState::Scheduled, &end, 4).unwrap());
        let row = two.get(id).unwrap().unwrap();
        assert_eq!((row.transfer.state, row.attempts, row.busy_retries), (TransferState::Scheduled, 1, 1));
    }

    // Two agents add what has one key, also while another statement holds what is known, and twice
    // in one request.
    let keyed = |key: usize| NewTransfer { key: Some(key.to_string()), ..transfer("keyed") };
    let known: Vec<_> = (0..3).map(keyed).collect();
    let added = one.add(&known, 1).unwrap();
    let again = one.atomically(|database| {
        database.get_locked(added[0])?;
        two.add(&(0..600).chain([599]).map(keyed).collect::<Vec<_>>(), 1)
    });
    let again = again.unwrap();
    assert_eq!((&again[..3], again.len(), again[600]), (&added[..], 601, again[599]));
    let rows = one.get_all(&again).unwrap();
    let in_order = rows.iter().map(|row| row.transfer.id).eq(again.iter().copied());
    assert!(in_order && rows[..600].is_sorted_by_key(|row| row.transfer.place.position));
    // What is moved again and again is between the others still, after all have got other
    // positions.
    for _ in 0..25 {
        two.place(all[3], Some(all[5])).unwrap();
        one.place(all[4], Some(all[3])).unwrap();
        two.place(all[3], Some(all[4])).unwrap();
    }
    let position = |id: i64| one.get(id).unwrap().unwrap().transfer.place.position;
    assert!(position(all[2]) < position(all[3]) && position(all[3]) < position(all[4]));
    assert!(position(all[4]) < position(all[5]));
}

#[test]
fn agent_leases_one_worker_of_each_plan_and_other_agents_the_next() {
    let Some(farm) = TestFarm::start() else { return };
    let (mut one, two) = (farm.agent("one", LEASE), farm.agent("two", LEASE));
    let new = ["/s/p", "/s/p", "/s/p", "/s/q"].map(worker).into_iter().chain([transfer("a")]);
    let all = one.add(&new.collect::<Vec<_>>(), 1).unwrap();
    let claim = |database: &Database, most| {
        let mut ids = ids(&database.claim(most, 1, LEASE).unwrap());
        ids.sort_unstable();
        ids
    };
    assert_eq!(claim(&one, 2), [all[0]], "two of the most urgent are of one plan");
    assert_eq!(claim(&one, 9), [all[3], all[4]], "another plan, and a file");
    assert_eq!(claim(&two, 9), [all[1]]);
    assert_eq!((claim(&one, 9).len(), claim(&two, 9).len()), (0, 0), "the third one waits for a host");
    let end = RunEnd { epoch: 1, ..RunEnd::default() };
    assert!(two.end(all[1], TransferState::Done, &end, 2).unwrap());
    assert_eq!((claim(&one, 9).len(), claim(&two, 9)), (0, vec![all[2]]));
}

#[test]
fn change_that_a_panic_or_the_connection_ends_is_not_stored_or_said_to_be_unknown() {
    let Some(farm) = TestFarm::start() else { return };
    let (mut one, two) = (farm.agent("one", LEASE), farm.agent("two", LEASE));
    let id = add(&mut one, 1)[0];
    let state = || two.get(id).unwrap().unwrap().transfer.state;
    let cancel = |database: &mut Database| database.set_state(id, TransferState::Cancelled, 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        one.atomically(|database| -> Result<(), DatabaseError> {
            cancel(database)?;
            panic!("within a transaction");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(state(), TransferState::Queued);
    one.atomically(|database| database.set_state(id, TransferState::Paused, 1)).unwrap();
    assert_eq!(state(), TransferState::Paused, "the next transaction");

    for (is_committing, said) in [(false, "not stored"), (true, "may be stored or not")] {
        let lost = one.atomically(|database| {
            cancel(database)?;
            farm.cut();
            if is_committing { Ok(()) } else { cancel(database) }
        });
        let error = lost.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        // The server has ended the connection before it got the rest.
        assert_eq!(state(), TransferState::Paused);
        one.get(id).unwrap();
    }

    // A host that does not answer is passed over. A statement that lasts ends within a third of the
    // lease, and the connection is used again.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = format!("@127.0.0.1:{},", silent.local_addr().unwrap().port());
    let url = farm.postgres.url("farm").replace('@', &hosts);
    let short = farm.agent_of(&url, "short", Duration::from_secs(3));
    let Err(StoreError::Farm(error)) = short.execute("SELECT pg_sleep(60)::TEXT", &[]) else { panic!() };
    assert!(error.kind() == FailureKind::Unavailable && error.to_string().contains("timeout"), "{error}");
    assert_eq!(short.get(id).unwrap().unwrap().transfer.id, id);
}

#[test]
fn statements_of_each_wake_read_no_whole_table() {
    let Some(farm) = TestFarm::start() else { return };
    let mut one = farm.agent("one", LEASE);
    add(&mut one, 1);
    // All columns but those of the numbers.
    let copy = "INSERT INTO longhaul.transfers (kind, state, priority, position, request, urls, name, path, added)
                SELECT kind, CASE WHEN n < 5000 THEN 'done' ELSE state END, priority, n, request, urls, name, path, added
                FROM longhaul.transfers, generate_series(1, 10000) AS n";
    farm.postgres.sql(copy);
    farm.postgres.sql("VACUUM ANALYZE longhaul.transfers");
    let read = one.atomically(|database| {
        database.running()?;
        database.offered()?;
        // More often than the five times after which PostgreSQL may plan for all values at once.
        for _ in 0..8 {
            assert_eq!(database.claim(3, 1, LEASE)?.len(), 3);
            assert!(database.scheduled()?.is_empty());
            assert_eq!(database.expire()?, 0);
            assert_eq!(database.held()?.len(), database.renew(LEASE)?.len());
        }
        let select = "SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relname = 'transfers'";
        database.value::<i64>(select, &[]).map_err(DatabaseError::using("read"))
    });
    assert_eq!(read.unwrap(), Some(0), "rows that were read without an index");
}

#[test]
fn transfer_of_another_version_is_refused_and_holds_up_no_other() {
    let Some(farm) = TestFarm::start() else { return };
    let mut one = farm.agent("one", LEASE);
    let all = add(&mut one, 4);
    let change = |to: &str| farm.postgres.sql(&format!("UPDATE longhaul.transfers SET {to}"));
    change(&format!("run = '7' WHERE id = {}", all[0]));
    change(&format!("state = 'scheduled', at = 1 WHERE id IN ({}, {})", all[2], all[3]));
    change(&format!("kind = 'new' WHERE id = {}", all[2]));
    assert_eq!(one.scheduled().unwrap().len(), 1);
    assert_eq!(one.page(None, None, 10).unwrap().rows.len(), 2);
    let claimed = one.claim(10, 1, LEASE).unwrap();
    assert_eq!(claimed.len(), 2);
    let failure =
        TransferFailure { message: "of another version".to_owned(), exit_code: 78, file_exists: false };
    for claimed in claimed {
        assert_eq!(claimed.row.is_err(), claimed.id == all[0]);
        if claimed.row.is_err() {
            one.refuse((claimed.id, claimed.epoch), &failure, 5).unwrap();
        }
    }
    let refused = format!("SELECT state, run, ended FROM longhaul.transfers WHERE id = {}", all[0]);
    assert_eq!(farm.postgres.sql(&refused), "failed|7|5");
}

/// The transfers of the measurement, and the agents that run them.
const MANY: usize = 10_000;
const AGENTS: usize = 8;
/// What 99 of 100 claims must take less than, while each agent claims and ends one transfer after
/// the other.
const MAX_CLAIM: Duration = Duration::from_millis(10);

#[test]
#[ignore = "judges times: cargo test --release -p longhaul-agent --lib -- --ignored --nocapture"]
fn eight_agents_claim_ten_thousand_transfers_in_milliseconds_each() {
    let Some(farm) = TestFarm::start() else { return };
    farm.postgres.sql("ALTER SYSTEM SET fsync = on");
    farm.postgres.sql("SELECT pg_reload_conf()");
    add(&mut farm.agent("first", LEASE), MANY);
    let times = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for number in 0..AGENTS {
            let (farm, times) = (&farm, &times);
            threads.spawn(move || {
                let agent = farm.agent(&number.to_string(), LEASE);
                loop {
                    let began = Instant::now();
                    let claimed = agent.claim(1, 1, LEASE).unwrap();
                    let took = began.elapsed();
                    let [ClaimedTransfer { id, epoch, .. }] = claimed[..] else { return };
                    times.lock().push(took);
                    let end = RunEnd { epoch, ..RunEnd::default() };
                    assert!(agent.end(id, TransferState::Done, &end, 2).unwrap());
                }
            });
        }
    });
    let mut times = times.into_inner();
    times.sort_unstable();
    assert_eq!(times.len(), MANY);
    let [middle, most] = [MANY / 2, MANY - MANY / 100].map(|place| times[place]);
    println!("claims: p50 {middle:?}, p99 {most:?}, longest {:?}", times[MANY - 1]);
    assert!(most < MAX_CLAIM, "p99 {most:?}");
}
