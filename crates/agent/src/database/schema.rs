//! The tables, and the migrations between versions.

/// Identifies the file as this program's (PRAGMA application_id): `LHQ1`.
pub(super) const APPLICATION: i64 = 0x4c48_5131;

/// Step N migrates from version N to N + 1; a database without tables has version 0. Released steps never change.
pub(super) const STEPS: [&str; 3] = [
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
];

/// The current version.
pub(super) const VERSION: i64 = STEPS.len() as i64;
