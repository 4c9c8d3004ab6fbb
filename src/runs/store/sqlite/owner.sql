-- Whose sandboxes the open executions are: the identity of the state directory (its file `instance`)
-- that the store was opened with first.

CREATE TABLE owner (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    instance TEXT NOT NULL
) STRICT;
