-- What the next daemon has to know of an execution that it finds open: the how manieth attempt of its
-- run it is, and in which life of the host it was planned (boot_id of the kernel; empty if unknown).

ALTER TABLE executions ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;

ALTER TABLE executions ADD COLUMN boot TEXT NOT NULL DEFAULT '';
