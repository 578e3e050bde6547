//! The tables, and the migrations between versions.

use rusqlite::Connection;

/// Identifies the file as this program's (PRAGMA application_id): `LHQ1`.
pub(super) const APPLICATION: i64 = 0x4c48_5131;

/// Step N migrates from version N to N + 1; a database without tables has version 0. Released steps
/// never change.
pub(super) const STEPS: [&str; 4] = [
    "
CREATE TABLE transfers (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    key          TEXT UNIQUE,
    kind         TEXT NOT NULL,
    state        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    position     INTEGER NOT NULL,
    request      BLOB NOT NULL,
    urls         TEXT NOT NULL,
    name         TEXT NOT NULL,
    path         TEXT NOT NULL,
    page_url     TEXT,
    limit_bps    INTEGER,
    size         INTEGER,
    bytes        INTEGER NOT NULL DEFAULT 0,
    run          TEXT NOT NULL DEFAULT '{}',
    error        TEXT,
    at           INTEGER,
    retry_at     INTEGER,
    attempts     INTEGER NOT NULL DEFAULT 0,
    part_target  BLOB,
    part_device  INTEGER,
    part_inode   INTEGER,
    part_born    INTEGER,
    added        INTEGER NOT NULL,
    started      INTEGER,
    ended        INTEGER,
    -- The order of listings: what runs, what needs the user, what waits, what has ended.
    rank         INTEGER NOT NULL AS (CASE state WHEN 'running' THEN 0 WHEN 'waiting-link' THEN 1
                     WHEN 'done' THEN 3 WHEN 'failed' THEN 3 WHEN 'cancelled' THEN 3 ELSE 2 END) VIRTUAL,
    urgency      INTEGER NOT NULL AS (CASE WHEN state IN ('done', 'failed', 'cancelled') THEN 0 ELSE -priority END) VIRTUAL,
    place        INTEGER NOT NULL AS (CASE WHEN state IN ('done', 'failed', 'cancelled') THEN -coalesce(ended, 0) ELSE position END)
                     VIRTUAL
);
CREATE INDEX listing ON transfers(rank, urgency, place, id);
CREATE INDEX queue ON transfers(state, priority DESC, position, id);
CREATE INDEX places ON transfers(position);
CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
",
    "
ALTER TABLE transfers ADD COLUMN gid INTEGER;
CREATE UNIQUE INDEX gids ON transfers(gid) WHERE gid IS NOT NULL;
",
    "
-- Whether a browser has offered the transfer, and it is not yet accepted.
ALTER TABLE transfers ADD COLUMN offered INTEGER NOT NULL DEFAULT 0;
",
    "
-- The agent, the number of leases, and the retries in a row because another run held the file, which only farms change.
ALTER TABLE transfers ADD COLUMN owner TEXT;
ALTER TABLE transfers ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE transfers ADD COLUMN busy_retries INTEGER NOT NULL DEFAULT 0;
",
];

/// The current version.
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// Migrates the tables to the current version in one transaction.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> rusqlite::Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for step in STEPS.iter().skip(usize::try_from(version).unwrap_or_default()) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// The version of a farm's tables.
pub(super) const FARM_VERSION: i64 = 1;

/// The tables of a farm in the schema `longhaul` of PostgreSQL; `transfers` has the columns of the
/// file's. A change of a transfer notifies all agents: `work` if it may give work to one, or end a
/// run, else `show`.
pub(super) const FARM_TABLES: &str = "
CREATE TABLE farm (
    version      BIGINT NOT NULL,
    -- Text sealed with the farm's key, by which agents recognise it.
    sealed       BYTEA NOT NULL
);
CREATE TABLE hosts (
    owner        TEXT PRIMARY KEY,
    version      TEXT NOT NULL,
    seen         BIGINT NOT NULL,
    running      BIGINT NOT NULL,
    goodput_bps  BIGINT NOT NULL,
    moved        BIGINT NOT NULL
);
CREATE TABLE transfers (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key          TEXT UNIQUE,
    gid          BIGINT UNIQUE,
    kind         TEXT NOT NULL,
    state        TEXT NOT NULL,
    priority     BIGINT NOT NULL,
    position     BIGINT NOT NULL,
    request      BYTEA NOT NULL,
    urls         TEXT NOT NULL,
    name         TEXT NOT NULL,
    path         TEXT NOT NULL,
    page_url     TEXT,
    limit_bps    BIGINT,
    size         BIGINT,
    bytes        BIGINT NOT NULL DEFAULT 0,
    run          TEXT NOT NULL DEFAULT '{}',
    error        TEXT,
    at           BIGINT,
    retry_at     BIGINT,
    attempts     BIGINT NOT NULL DEFAULT 0,
    -- The retries in a row because another run held the file.
    busy_retries BIGINT NOT NULL DEFAULT 0,
    part_target  BYTEA,
    part_device  BIGINT,
    part_inode   BIGINT,
    part_born    BIGINT,
    added        BIGINT NOT NULL,
    started      BIGINT,
    ended        BIGINT,
    offered      BIGINT NOT NULL DEFAULT 0,
    -- The agent of the last lease, the number of leases, and the end of the last one in milliseconds of the database's clock.
    owner        TEXT,
    epoch        BIGINT NOT NULL DEFAULT 0,
    lease_until  BIGINT,
    rank         BIGINT NOT NULL GENERATED ALWAYS AS (CASE state WHEN 'running' THEN 0 WHEN 'waiting-link' THEN 1
                     WHEN 'done' THEN 3 WHEN 'failed' THEN 3 WHEN 'cancelled' THEN 3 ELSE 2 END) STORED,
    urgency      BIGINT NOT NULL GENERATED ALWAYS AS (CASE WHEN state IN ('done', 'failed', 'cancelled') THEN 0 ELSE -priority END) STORED,
    place        BIGINT NOT NULL GENERATED ALWAYS AS (CASE WHEN state IN ('done', 'failed', 'cancelled') THEN -coalesce(ended, 0)
                     ELSE position END) STORED
);
CREATE INDEX listing ON transfers(rank, urgency, place, id);
CREATE INDEX queue ON transfers(priority DESC, position, id) WHERE state = 'queued';
CREATE INDEX leases ON transfers(owner) WHERE state = 'running';
CREATE INDEX waiting ON transfers(id) WHERE state = 'scheduled';
CREATE INDEX offers ON transfers(id) WHERE offered = 1;
CREATE INDEX places ON transfers(position);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('longhaul', CASE WHEN TG_OP <> 'DELETE' AND NEW.state NOT IN ('running', 'done', 'failed') THEN 'work' ELSE 'show' END);
    RETURN NULL;
END $$;
CREATE TRIGGER told AFTER INSERT OR DELETE OR UPDATE OF state, priority, position, limit_bps, part_target ON transfers
    FOR EACH ROW EXECUTE FUNCTION tell();
";
