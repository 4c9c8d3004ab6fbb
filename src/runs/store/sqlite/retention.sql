-- What goes after a time. `kept_since` is the kept time (see kept_clock.rs) at which a run ended, null
-- as long as it has not; `kept_bytes` is what is kept of it, artifacts included.

ALTER TABLE runs ADD COLUMN kept_since INTEGER;

ALTER TABLE runs ADD COLUMN kept_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE runs SET
    kept_since = CASE WHEN ended_at IS NULL THEN NULL ELSE 0 END,
    kept_bytes = octet_length(outline)
        + coalesce((SELECT octet_length(request) FROM requests
                    WHERE requests.sequence = runs.sequence), 0)
        + coalesce((SELECT sum(octet_length(episode) + octet_length(code)) FROM episodes
                    WHERE run_id = runs.id), 0)
        + coalesce((SELECT sum(json_extract(artifact.value, '$.size'))
                    FROM episodes, json_each(episode, '$.execution.artifacts') AS artifact
                    WHERE run_id = runs.id), 0);

-- Serves the oldest of a tenant and the sums over all that it has. New ones go to the end of their
-- tenant's part.
CREATE INDEX runs_kept ON runs (tenant, kept_since, sequence, kept_bytes)
    WHERE kept_since IS NOT NULL;

-- Serve the removal of a run, and SQLite's look for what refers to it.
CREATE INDEX executions_by_run ON executions (run_id);

CREATE INDEX idempotency_keys_by_run ON idempotency_keys (run_id);

-- Receipts outlive their runs: the chain has no gap.
CREATE TABLE receipts_of_all (
    number       INTEGER PRIMARY KEY CHECK (number > 0),
    execution_id TEXT NOT NULL UNIQUE,
    run_id       TEXT NOT NULL,
    link         TEXT NOT NULL,
    receipt      TEXT NOT NULL
) STRICT;

INSERT INTO receipts_of_all SELECT number, execution_id, run_id, link, receipt
    FROM receipts ORDER BY number;

DROP TABLE receipts;

ALTER TABLE receipts_of_all RENAME TO receipts;

CREATE INDEX receipts_by_run ON receipts (run_id, number);

-- Executions whose run is gone and whose artifacts have to go.
CREATE TABLE removals (
    execution_id TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Microseconds: kept time, and the wall clock at the same moment.
CREATE TABLE kept_clock (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    kept INTEGER NOT NULL,
    wall INTEGER NOT NULL
) STRICT;

INSERT INTO kept_clock (id, kept, wall) VALUES (1, 0, unixepoch() * 1000000);
