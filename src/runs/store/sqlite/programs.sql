-- The program of an open execution that is in no request, as JSON; gone once the execution is closed.
-- How many daemons have gone on with a run.

ALTER TABLE executions ADD COLUMN program TEXT;

ALTER TABLE runs ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0;
