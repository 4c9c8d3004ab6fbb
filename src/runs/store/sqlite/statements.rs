//! Every statement on a path that runs take, so that one test can ask SQLite for the plan of each.

use super::rows::COLUMNS;

pub(super) const KEY: &str =
    "SELECT fingerprint, run_id FROM idempotency_keys WHERE tenant = ? AND client = ? AND key = ?";

/// Its number is not asked for by RETURNING, which makes SQLite plan for a look through all referring
/// tables.
pub(super) const INSERT_RUN: &str = "INSERT INTO runs \
     (tenant, id, client, outline, status, accepted_at, reserved_cpu, kept_bytes) \
     VALUES (?, ?, ?, ?, 'QUEUED', ?, ?, ?)";

pub(super) const INSERT_REQUEST: &str = "INSERT INTO requests (sequence, request) VALUES (?, ?)";

pub(super) const INSERT_KEY: &str = "INSERT INTO idempotency_keys (tenant, client, key, fingerprint, run_id) VALUES (?, ?, ?, ?, ?)";

pub(super) const UPDATE_STATE: &str = "UPDATE runs SET status = ?, cancel_requested = ?, started_at = ?, ended_at = ?, outcome = ?, \
     kept_since = ?, kept_bytes = kept_bytes + ? \
     WHERE sequence = ? AND status = ? AND status IN ('QUEUED', 'RUNNING')";

pub(super) const STATUS: &str = "SELECT status FROM runs WHERE id = ?";

pub(super) const INSERT_EXECUTION: &str = "INSERT INTO executions (id, run_id, state, attempt, boot, program) VALUES (?, ?, 'OPEN', ?, ?, ?)";

pub(super) const INSERT_EPISODE: &str =
    "INSERT INTO episodes (run_id, iteration, episode, code) VALUES (?, ?, ?, ?)";

pub(super) const RECORD_EXECUTION: &str =
    "UPDATE executions SET state = 'RECORDED', program = NULL WHERE id = ? AND state = 'OPEN'";

pub(super) const ABANDON_EXECUTION: &str =
    "UPDATE executions SET state = 'ABANDONED', program = NULL WHERE id = ? AND state = 'OPEN'";

pub(super) const COUNT_TAKEOVER: &str = "UPDATE runs SET takeovers = takeovers + 1 WHERE id = ?";

pub(super) const TAKEOVERS: &str = "SELECT takeovers AS number FROM runs WHERE id = ?";

pub(super) const OPEN_EXECUTIONS: &str =
    "SELECT id, run_id, attempt, boot, program FROM executions WHERE state = 'OPEN'";

/// The run of an execution that is open.
pub(super) const OPEN_EXECUTION: &str =
    "SELECT run_id FROM executions WHERE id = ? AND state = 'OPEN'";

/// The last link of the chain. The receipts themselves are not read for it.
pub(super) const CHAIN_HEAD: &str =
    "SELECT number, link FROM receipts ORDER BY number DESC LIMIT 1";

pub(super) const INSERT_RECEIPT: &str =
    "INSERT INTO receipts (number, execution_id, run_id, link, receipt) VALUES (?, ?, ?, ?, ?)";

/// The end of the chain with its text.
pub(super) const LAST_RECEIPT: &str =
    "SELECT number, link, receipt FROM receipts ORDER BY number DESC LIMIT 1";

pub(super) const RECEIPT: &str =
    "SELECT receipt FROM receipts WHERE run_id = ? ORDER BY number DESC LIMIT 1";

pub(super) const RECEIPT_OF: &str =
    "SELECT receipt FROM receipts WHERE execution_id = ? AND run_id = ?";

/// A piece of the chain.
pub(super) const RECEIPTS_FROM: &str =
    "SELECT number, receipt FROM receipts WHERE number >= ? ORDER BY number LIMIT ?";

pub(super) const EPISODES: &str =
    "SELECT episode FROM episodes WHERE run_id = ? ORDER BY iteration";

/// Not what was looked at before the first turn.
pub(super) const LAST_EPISODE: &str = "SELECT episode FROM episodes WHERE run_id = ? AND iteration > 0 \
     ORDER BY iteration DESC LIMIT 1";

/// The program of a run's last turn.
pub(super) const LAST_PROGRAM: &str = "SELECT code FROM episodes WHERE run_id = ? AND iteration > 0 \
     ORDER BY iteration DESC LIMIT 1";

/// Its parameter is a JSON list of runs. Takes out of an episode what is needed, because a page of
/// runs can have a hundred megabytes of episodes.
pub(super) const JUDGEMENTS: &str = "SELECT run_id, iteration, \
     json_extract(episode, '$.judge_decision') AS decision, \
     json_extract(episode, '$.judge_reason') AS reason FROM episodes \
     WHERE run_id IN (SELECT value FROM json_each(?)) AND decision IS NOT NULL \
     ORDER BY run_id, iteration";

/// Only asked when the store is opened; the writer counts on from there.
pub(super) const COUNT_UNFINISHED: &str =
    "SELECT count(*) FROM runs WHERE status IN ('QUEUED', 'RUNNING')";

/// What a tenant has waiting or going on. Only asked where it has a quota, which bounds the count.
pub(super) const COUNT_UNFINISHED_OF_TENANT: &str =
    "SELECT count(*) AS number FROM runs WHERE tenant = ? AND status IN ('QUEUED', 'RUNNING')";

/// What may still be used by what a tenant has waiting or going on. Only asked where it has a quota.
pub(super) const CPU_RESERVED: &str = "SELECT coalesce(sum(reserved_cpu), 0) AS number FROM runs \
     WHERE tenant = ? AND status IN ('QUEUED', 'RUNNING')";

/// Adds what a request takes to the account of its tenant.
pub(super) const ADD_STORED: &str = "INSERT INTO usage (tenant, day, cpu_microseconds, stored_bytes) \
     VALUES (?, ?, 0, ?) \
     ON CONFLICT (tenant, day) DO UPDATE SET stored_bytes = stored_bytes + excluded.stored_bytes";

/// Adds what an execution used to the account of the run's tenant. Its parameters are the day, the
/// CPU time that was reported, the wall clock for where none was, the bytes, and the run.
pub(super) const ADD_USAGE: &str = "INSERT INTO usage (tenant, day, cpu_microseconds, stored_bytes) \
     SELECT tenant, ?, \
     coalesce(?, min(reserved_cpu, cast(? * json_extract(outline, '$.limits.cpus') AS INTEGER))), ? \
     FROM runs WHERE id = ? \
     ON CONFLICT (tenant, day) DO UPDATE SET \
     cpu_microseconds = cpu_microseconds + excluded.cpu_microseconds, \
     stored_bytes = stored_bytes + excluded.stored_bytes";

pub(super) const CPU_OF_DAY: &str =
    "SELECT coalesce(sum(cpu_microseconds), 0) AS number FROM usage WHERE tenant = ? AND day = ?";

pub(super) const STORED: &str =
    "SELECT coalesce(sum(stored_bytes), 0) AS number FROM usage WHERE tenant = ?";

/// Adds what is kept of an episode, of a run that goes on.
pub(super) const ADD_KEPT: &str = "UPDATE runs SET kept_bytes = kept_bytes + ? WHERE id = ?";

/// The tenant after this one that has runs that are over.
pub(super) const NEXT_TENANT: &str = "SELECT tenant FROM runs INDEXED BY runs_kept \
     WHERE kept_since IS NOT NULL AND tenant > ? ORDER BY tenant LIMIT 1";

/// All that a tenant has kept. Reads its part of one index, whose entries have all that is asked for.
pub(super) const KEPT_TOTALS: &str = "SELECT count(*) AS runs, coalesce(sum(kept_bytes), 0) AS bytes FROM runs INDEXED BY runs_kept \
     WHERE tenant = ? AND kept_since IS NOT NULL";

pub(super) const KEPT_OLDEST: &str = "SELECT sequence, id, kept_since, kept_bytes \
     FROM runs INDEXED BY runs_kept WHERE tenant = ? AND kept_since IS NOT NULL \
     ORDER BY kept_since, sequence LIMIT ?";

/// A run that is over, and of which no execution can have a sandbox.
pub(super) const REMOVABLE: &str = "SELECT id, tenant, kept_bytes FROM runs \
     WHERE sequence = ? AND kept_since IS NOT NULL AND status NOT IN ('QUEUED', 'RUNNING') \
     AND NOT EXISTS (SELECT 1 FROM executions INDEXED BY executions_by_run \
     WHERE run_id = runs.id AND state = 'OPEN')";

/// Which artifacts have to go with a run.
pub(super) const NOTE_REMOVALS: &str = "INSERT OR IGNORE INTO removals (execution_id) \
     SELECT id FROM executions INDEXED BY executions_by_run WHERE run_id = ?";

/// What refers to a run by its id.
pub(super) const REMOVE_OF_RUN: [&str; 3] = [
    "DELETE FROM episodes WHERE run_id = ?",
    "DELETE FROM executions WHERE run_id = ?",
    "DELETE FROM idempotency_keys WHERE run_id = ?",
];

/// A run and its request.
pub(super) const REMOVE_BY_SEQUENCE: [&str; 2] = [
    "DELETE FROM requests WHERE sequence = ?",
    "DELETE FROM runs WHERE sequence = ?",
];

pub(super) const REMOVALS: &str =
    "SELECT execution_id FROM removals WHERE execution_id > ? ORDER BY execution_id LIMIT ?";

pub(super) const REMOVED: &str = "DELETE FROM removals WHERE execution_id = ?";

pub(super) const OWNER: &str = "SELECT instance FROM owner WHERE id = 1";

pub(super) const SET_OWNER: &str = "INSERT INTO owner (id, instance) VALUES (1, ?)";

pub(super) const KEPT_CLOCK: &str = "SELECT kept, boot, up FROM kept_clock WHERE id = 1";

pub(super) const NOTE_CLOCK: &str = "UPDATE kept_clock SET kept = ?, boot = ?, up = ? WHERE id = 1";

pub(super) const SIGHTED: &str =
    "SELECT kept_since FROM sightings WHERE kind = ? AND name = ? AND mark = ?";

pub(super) const SIGHT: &str =
    "INSERT OR REPLACE INTO sightings (kind, name, mark, kept_since) VALUES (?, ?, ?, ?)";

pub(super) const SIGHTINGS: &str = "SELECT kind, name FROM sightings";

pub(super) const UNSIGHT: &str = "DELETE FROM sightings WHERE kind = ? AND name = ?";

/// A run, if it is this tenant's.
pub(super) fn run_of_tenant() -> String {
    format!("SELECT {COLUMNS} FROM runs WHERE id = ? AND tenant = ?")
}

pub(super) fn run() -> String {
    format!("SELECT {COLUMNS} FROM runs WHERE id = ?")
}

pub(super) fn complete_run() -> String {
    format!("SELECT {COLUMNS}, request FROM runs JOIN requests USING (sequence) WHERE id = ?")
}

pub(super) fn runs_with_status() -> String {
    format!("SELECT {COLUMNS} FROM runs WHERE status = ? ORDER BY sequence")
}

/// A page of a tenant's list. Its parameters are the tenant and those of the parts it has: status, the
/// sequence number before which it ends, the limit.
pub(super) fn page(with_status: bool, with_end: bool) -> String {
    let status = if with_status { " AND status = ?" } else { "" };
    let end = if with_end { " AND sequence < ?" } else { "" };
    format!(
        "SELECT {COLUMNS} FROM runs WHERE tenant = ?{status}{end} ORDER BY sequence DESC LIMIT ?"
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::params_from_iter;
    use rusqlite::types::Null;

    use super::*;
    use crate::runs::service::testing::Place;
    use crate::runs::store::sqlite::rows;

    fn all() -> Vec<String> {
        let fixed = [
            KEY,
            INSERT_RUN,
            INSERT_REQUEST,
            INSERT_KEY,
            UPDATE_STATE,
            STATUS,
            INSERT_EXECUTION,
            INSERT_EPISODE,
            RECORD_EXECUTION,
            ABANDON_EXECUTION,
            COUNT_TAKEOVER,
            TAKEOVERS,
            OPEN_EXECUTIONS,
            OPEN_EXECUTION,
            CHAIN_HEAD,
            INSERT_RECEIPT,
            LAST_RECEIPT,
            RECEIPT,
            RECEIPT_OF,
            RECEIPTS_FROM,
            EPISODES,
            LAST_EPISODE,
            LAST_PROGRAM,
            JUDGEMENTS,
            COUNT_UNFINISHED,
            COUNT_UNFINISHED_OF_TENANT,
            CPU_RESERVED,
            ADD_STORED,
            ADD_USAGE,
            CPU_OF_DAY,
            STORED,
            ADD_KEPT,
            NEXT_TENANT,
            KEPT_TOTALS,
            KEPT_OLDEST,
            REMOVABLE,
            NOTE_REMOVALS,
            REMOVALS,
            REMOVED,
            OWNER,
            SET_OWNER,
            KEPT_CLOCK,
            NOTE_CLOCK,
            SIGHTED,
            SIGHT,
            SIGHTINGS,
            UNSIGHT,
        ];
        let pages = [(false, false), (false, true), (true, false), (true, true)];
        let made = [run(), run_of_tenant(), complete_run(), runs_with_status()]
            .into_iter()
            .chain(pages.map(|(with_status, with_end)| page(with_status, with_end)));
        let removing = REMOVE_OF_RUN.iter().chain(&REMOVE_BY_SEQUENCE);
        fixed
            .iter()
            .chain(removing)
            .map(|text| (*text).to_owned())
            .chain(made)
            .collect()
    }

    #[tokio::test]
    async fn no_statement_reads_a_whole_table_or_sorts() {
        let place = Place::new();
        let store = place.open().await;
        for statement in all() {
            let explained = format!("EXPLAIN QUERY PLAN {statement}");
            let plan = store.readers.read("explain", move |access| {
                let unknown = vec![Null; explained.matches('?').count()];
                access.all(&explained, params_from_iter(unknown), |row| {
                    rows::column::<String>(row, "detail")
                })
            });
            for step in plan.await.unwrap() {
                // The open executions are all that their index has.
                let sound = step.starts_with("SEARCH")
                    // The last receipt is the first row from the end.
                    || (step == "SCAN receipts" && [CHAIN_HEAD, LAST_RECEIPT].contains(&statement.as_str()))
                    || step == "SCAN executions USING INDEX executions_open"
                    // All of what is on the engine is asked for.
                    || (statement == SIGHTINGS && step == "SCAN sightings")
                    || (statement == REMOVABLE && step == "CORRELATED SCALAR SUBQUERY 1")
                    || (statement == JUDGEMENTS
                        && ["LIST SUBQUERY 1", "SCAN json_each VIRTUAL TABLE INDEX 1:"]
                            .contains(&step.as_str()));
                assert!(sound, "{statement}: {step}");
            }
        }
    }
}
