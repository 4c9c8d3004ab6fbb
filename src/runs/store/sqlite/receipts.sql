-- One receipt for each execution that is over, in one chain: the numbers have no gap, and each
-- receipt names the hash of the one before it. The hash is kept beside the text, so that the chain
-- goes on without its last receipt being read.

CREATE TABLE receipts (
    number       INTEGER PRIMARY KEY CHECK (number > 0),
    execution_id TEXT NOT NULL UNIQUE,
    run_id       TEXT NOT NULL REFERENCES runs (id),
    link         TEXT NOT NULL,
    receipt      TEXT NOT NULL
) STRICT;

CREATE INDEX receipts_by_run ON receipts (run_id, number);
