//! Leases of a farm's transfers. The database's clock alone judges them, and each lease has an
//! owner and a number: what an agent stores under an earlier one changes nothing. The number alone
//! may repeat, where a failover loses the last lease.

use std::time::Duration;

use rusqlite::params;

use super::column::clamped;
use super::order::other_plans;
use super::row::COLUMNS;
use super::{Database, DatabaseError, ResultRow, StoreError, TransferRow};
use crate::farm::FarmHost;
use crate::json;
use crate::transfer::{FileProgress, TransferFailure, TransferKind};

/// The seconds in which an agent that has failed at a plan leases no other worker of it: its host
/// may lack the file system or the login that others have, and would fail at all workers at once.
const FAILED_PLAN_PAUSE: i64 = 600;
/// The database's clock in milliseconds since 1970.
const NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
/// The time after which an agent that was not seen is forgotten, in milliseconds.
const FORGET_AFTER: i64 = 86_400_000;

/// A transfer that this agent has just leased.
#[derive(Debug)]
pub(crate) struct ClaimedTransfer {
    pub(crate) id: i64,
    pub(crate) epoch: i64,
    /// The transfer, or the reason why this version cannot read it.
    pub(crate) row: Result<TransferRow, DatabaseError>,
}

impl ClaimedTransfer {
    /// Returns whether the transfer is a worker of a plan.
    pub(crate) fn is_worker(&self) -> bool {
        self.row.as_ref().is_ok_and(|row| row.transfer.kind == TransferKind::Plan)
    }
}

/// A transfer that this agent holds a lease of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeldTransfer {
    pub(crate) id: i64,
    pub(crate) epoch: i64,
    pub(crate) priority: i64,
    pub(crate) position: i64,
    pub(crate) limit_bps: Option<u64>,
}

/// The columns of a [`HeldTransfer`].
const HELD_COLUMNS: &str = "id, epoch, priority, position, limit_bps";

impl HeldTransfer {
    fn read(row: &ResultRow<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.get("id")?,
            epoch: row.get("epoch")?,
            priority: row.get("priority")?,
            position: row.get("position")?,
            limit_bps: row.get("limit_bps")?,
        })
    }
}

/// Returns the host in the name of an agent.
pub(super) fn host_of(owner: &str) -> &str {
    owner.rsplit_once('/').map_or(owner, |(host, _)| host)
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Database {
    /// Returns this agent in `owner`; empty without a farm.
    pub(super) fn owner(&self) -> &str {
        self.farm.as_ref().map_or("", |farm| &farm.owner)
    }

    /// Leases the next queued transfers, most urgent first, that no other agent is about to lease.
    /// Of a plan it leases one worker, if this agent has none, nor failed at one lately: further
    /// ones are for other hosts.
    pub(crate) fn claim(
        &self,
        most: usize,
        now: i64,
        lease: Duration,
    ) -> Result<Vec<ClaimedTransfer>, DatabaseError> {
        let other_plans = format!(
            "{} AND (kind <> 'plan' OR path NOT IN (SELECT path FROM transfers
                                                    WHERE state = 'failed' AND kind = 'plan' AND coalesce(owner, '') = ?2
                                                       AND ended > ?1 - {FAILED_PLAN_PAUSE}))",
            other_plans("?2")
        );
        // Materialized, the choice is made once: a plan that repeats it leases more than `most`.
        // Each limit has a plan of its own: for a limit in a parameter, one plan may read the whole
        // table.
        let update = format!(
            "WITH next AS MATERIALIZED (SELECT id, kind, path, priority, position FROM transfers
                                        WHERE state = 'queued' AND {other_plans} ORDER BY priority DESC, position, id
                                        LIMIT {most} FOR UPDATE SKIP LOCKED),
                  chosen AS (SELECT DISTINCT ON (CASE kind WHEN 'plan' THEN path ELSE CAST(id AS TEXT) END) id FROM next
                             ORDER BY CASE kind WHEN 'plan' THEN path ELSE CAST(id AS TEXT) END, priority DESC, position, id)
             UPDATE transfers SET state = 'running', started = coalesce(started, ?1), retry_at = NULL, epoch = epoch + 1,
                owner = ?2, lease_until = {NOW} + ?3
             WHERE id IN (SELECT id FROM chosen)
             RETURNING {COLUMNS}"
        );
        let failed = DatabaseError::using("claim from");
        let claimed = |row: &ResultRow<'_>| {
            let (id, epoch) = (row.get("id")?, row.get("epoch")?);
            Ok(ClaimedTransfer { id, epoch, row: TransferRow::read(row).map_err(&failed) })
        };
        self.query(&update, params![now, self.owner(), milliseconds(lease)], claimed).map_err(&failed)
    }

    /// Lets the other agents look for work.
    pub(crate) fn call_agents(&self) -> Result<(), DatabaseError> {
        self.change("SELECT pg_notify('longhaul', 'work')", &[]).map(drop)
    }

    /// Ends a leased transfer that cannot be read; changes nothing else of it, which another
    /// version may read.
    pub(crate) fn refuse(
        &self,
        (id, epoch): (i64, i64),
        failure: &TransferFailure,
        now: i64,
    ) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET state = 'failed', ended = ?1, error = ?2
                      WHERE id = ?3 AND epoch = ?4 AND owner = ?5 AND state = 'running'";
        self.change(update, params![now, json(failure), id, epoch, self.owner()]).map(drop)
    }

    /// Renews the leases of this agent; returns them.
    pub(crate) fn renew(&self, lease: Duration) -> Result<Vec<HeldTransfer>, DatabaseError> {
        let update = format!(
            "WITH held AS MATERIALIZED (SELECT id FROM transfers WHERE state = 'running' AND owner = ?2 ORDER BY id FOR UPDATE)
             UPDATE transfers SET lease_until = {NOW} + ?1 WHERE id IN (SELECT id FROM held)
             RETURNING {HELD_COLUMNS}"
        );
        let values = params![milliseconds(lease), self.owner()];
        self.query(&update, values, HeldTransfer::read).map_err(DatabaseError::using("renew leases of"))
    }

    /// Reads the leases of this agent.
    pub(crate) fn held(&self) -> Result<Vec<HeldTransfer>, DatabaseError> {
        let select = format!("SELECT {HELD_COLUMNS} FROM transfers WHERE state = 'running' AND owner = ?1");
        self.query(&select, params![self.owner()], HeldTransfer::read).map_err(DatabaseError::using("read"))
    }

    /// Stores the progress of a run for other agents; changes nothing under an earlier lease.
    pub(crate) fn store_progress(
        &self,
        (id, epoch): (i64, i64),
        progress: &FileProgress,
    ) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET bytes = ?1, size = coalesce(?2, size), run = ?3
                      WHERE id = ?4 AND epoch = ?5 AND owner = ?6 AND state = 'running'";
        let (bytes, size) = (clamped(progress.bytes), progress.size.map(clamped));
        self.change(update, params![bytes, size, json(&progress.run), id, epoch, self.owner()]).map(drop)
    }

    /// Queues a transfer whose lease this agent does not use; changes nothing once another agent
    /// has leased it.
    pub(crate) fn release(&self, id: i64, epoch: i64) -> Result<(), DatabaseError> {
        let update = "UPDATE transfers SET state = 'queued'
                      WHERE id = ?1 AND epoch = ?2 AND coalesce(owner, '') = ?3 AND state = 'running'";
        self.change(update, params![id, epoch, self.owner()]).map(drop)
    }

    /// Queues all transfers whose leases have expired; returns their number.
    pub(crate) fn expire(&self) -> Result<u64, DatabaseError> {
        // One that is locked is renewed, changed or queued just now.
        let update = format!(
            "WITH expired AS MATERIALIZED (SELECT id FROM transfers WHERE state = 'running' AND lease_until < {NOW}
                                           FOR UPDATE SKIP LOCKED)
             UPDATE transfers SET state = 'queued' WHERE id IN (SELECT id FROM expired)"
        );
        self.change(&update, &[])
    }

    /// Stores what this agent reports of itself; returns the database's time in milliseconds since
    /// 1970.
    pub(crate) fn report_host(
        &self,
        running: usize,
        goodput_bps: u64,
        moved: u64,
    ) -> Result<i64, DatabaseError> {
        let forget = format!("DELETE FROM hosts WHERE seen < {NOW} - ?1");
        self.change(&forget, params![FORGET_AFTER])?;
        let insert = format!(
            "INSERT INTO hosts (owner, version, seen, running, goodput_bps, moved) VALUES (?1, ?2, {NOW}, ?3, ?4, ?5)
             ON CONFLICT (owner) DO UPDATE SET version = excluded.version, seen = excluded.seen, running = excluded.running,
                goodput_bps = excluded.goodput_bps, moved = excluded.moved
             RETURNING seen"
        );
        let version = env!("CARGO_PKG_VERSION");
        let values = params![self.owner(), version, running, clamped(goodput_bps), clamped(moved)];
        let seen = self.value(&insert, values).map_err(DatabaseError::using("change"))?;
        Ok(seen.unwrap_or_default())
    }

    /// Removes this agent from the list of hosts.
    pub(crate) fn leave(&self) -> Result<(), DatabaseError> {
        self.change("DELETE FROM hosts WHERE owner = ?1", params![self.owner()]).map(drop)
    }

    /// Reads the hosts of the farm: one is alive that has reported within a lease.
    pub(crate) fn hosts(&self, lease: Duration) -> Result<Vec<FarmHost>, DatabaseError> {
        let select = format!(
            "SELECT owner, version, greatest({NOW} - seen, 0) / 1000 AS seen_seconds, running, goodput_bps, moved
             FROM hosts ORDER BY owner"
        );
        let host = |row: &ResultRow<'_>| {
            let seen_seconds = row.get("seen_seconds")?;
            Ok(FarmHost {
                name: host_of(&row.get::<String>("owner")?).to_owned(),
                version: row.get("version")?,
                seen_seconds,
                is_alive: seen_seconds <= lease.as_secs(),
                running: row.get("running")?,
                goodput_bps: row.get("goodput_bps")?,
                moved_bytes: row.get("moved")?,
            })
        };
        self.query(&select, &[], host).map_err(DatabaseError::using("read"))
    }
}
