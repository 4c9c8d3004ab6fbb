-- Kept time goes by the time that the host has been up, and not by the wall clock (see kept_clock.rs):
-- which life of the host it was written down in, and how long that had lasted, in microseconds.

ALTER TABLE kept_clock DROP COLUMN wall;

ALTER TABLE kept_clock ADD COLUMN boot TEXT NOT NULL DEFAULT '';

ALTER TABLE kept_clock ADD COLUMN up INTEGER NOT NULL DEFAULT 0;

-- What is on the engine and goes after a time, and the kept time at which it was seen first. The mark tells it
-- from another thing of the same name.
CREATE TABLE sightings (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    mark       TEXT NOT NULL,
    kept_since INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
