-- Every run belongs to a tenant; what there was before belongs to `default`.

ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';

-- CPU time in microseconds that the run is taken to use as long as it has not ended.
ALTER TABLE runs ADD COLUMN reserved_cpu INTEGER NOT NULL DEFAULT 0;

-- Serves a tenant's filtered list, the count of what it has waiting or going on, and the CPU time
-- that is reserved for that.
CREATE INDEX runs_by_tenant_and_status ON runs (tenant, status, sequence, reserved_cpu);

-- Serves a tenant's whole list.
CREATE INDEX runs_by_tenant ON runs (tenant, sequence);

CREATE TABLE idempotency_keys_by_tenant (
    tenant      TEXT NOT NULL,
    client      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    run_id      TEXT NOT NULL REFERENCES runs (id),
    PRIMARY KEY (tenant, client, key)
) STRICT, WITHOUT ROWID;

INSERT INTO idempotency_keys_by_tenant (tenant, client, key, fingerprint, run_id)
    SELECT 'default', client, key, fingerprint, run_id FROM idempotency_keys;

DROP TABLE idempotency_keys;

ALTER TABLE idempotency_keys_by_tenant RENAME TO idempotency_keys;

-- What a tenant has used up, by the day (UTC, counted from 1970-01-01) on which it was recorded.
CREATE TABLE usage (
    tenant           TEXT NOT NULL,
    day              INTEGER NOT NULL,
    cpu_microseconds INTEGER NOT NULL,
    stored_bytes     INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;
