-- Times are microseconds since 1970 (UTC). Order comes from the sequence, never from a clock.

CREATE TABLE runs (
    sequence         INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL UNIQUE,
    client           TEXT NOT NULL,
    -- The request without the texts of programs and the bytes of files.
    outline          TEXT NOT NULL,
    status           TEXT NOT NULL
                     CHECK (status IN ('QUEUED', 'RUNNING', 'SUCCESS', 'FAIL', 'CANCELLED')),
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    accepted_at      INTEGER NOT NULL,
    started_at       INTEGER,
    ended_at         INTEGER,
    outcome          TEXT,
    CHECK ((ended_at IS NULL) = (status IN ('QUEUED', 'RUNNING'))),
    CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CHECK (status <> 'RUNNING' OR started_at IS NOT NULL)
) STRICT;

-- Serves the queue, the runs going on, the count of both and the filtered list.
CREATE INDEX runs_by_status ON runs (status, sequence);

-- The whole request. Apart from `runs`, so that lists do not read past megabytes.
CREATE TABLE requests (
    run_id  TEXT NOT NULL PRIMARY KEY REFERENCES runs (id),
    request TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
    client      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    run_id      TEXT NOT NULL REFERENCES runs (id),
    PRIMARY KEY (client, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE executions (
    id     TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id),
    state  TEXT NOT NULL CHECK (state IN ('OPEN', 'RECORDED', 'ABANDONED'))
) STRICT, WITHOUT ROWID;

CREATE INDEX executions_open ON executions (id) WHERE state = 'OPEN';

CREATE TABLE episodes (
    run_id    TEXT NOT NULL REFERENCES runs (id),
    iteration INTEGER NOT NULL,
    episode   TEXT NOT NULL,
    code      TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
) STRICT;
