-- A request is found by the number of its run, not by the run's random id: new requests go to the
-- end of the table, and there is no index in which each is written to another page.

CREATE TABLE requests_by_sequence (
    sequence INTEGER PRIMARY KEY REFERENCES runs (sequence),
    request  TEXT NOT NULL
) STRICT;

INSERT INTO requests_by_sequence (sequence, request)
    SELECT runs.sequence, request FROM runs JOIN requests ON run_id = id ORDER BY runs.sequence;

DROP TABLE requests;

ALTER TABLE requests_by_sequence RENAME TO requests;
