//! Every statement on a path that runs take, so that one test can ask SQLite for the plan of each.

use super::rows::COLUMNS;

pub(super) const KEY: &str =
    "SELECT fingerprint, run_id FROM idempotency_keys WHERE tenant = ? AND client = ? AND key = ?";

/// Its number is not asked for by RETURNING, which makes SQLite plan for a look through all referring
/// tables.
pub(super) const INSERT_RUN: &str = "INSERT INTO runs \
     (tenant, id, client, outline, status, accepted_at, reserved_cpu) \
     VALUES (?, ?, ?, ?, 'QUEUED', ?, ?)";

pub(super) const INSERT_REQUEST: &str = "INSERT INTO requests (sequence, request) VALUES (?, ?)";

pub(super) const INSERT_KEY: &str = "INSERT INTO idempotency_keys (tenant, client, key, fingerprint, run_id) VALUES (?, ?, ?, ?, ?)";

pub(super) const UPDATE_STATE: &str = "UPDATE runs SET status = ?, cancel_requested = ?, started_at = ?, ended_at = ?, outcome = ? \
     WHERE sequence = ? AND status = ? AND status IN ('QUEUED', 'RUNNING')";

pub(super) const STATUS: &str = "SELECT status FROM runs WHERE id = ?";

pub(super) const INSERT_EXECUTION: &str =
    "INSERT INTO executions (id, run_id, state) VALUES (?, ?, 'OPEN')";

pub(super) const INSERT_EPISODE: &str =
    "INSERT INTO episodes (run_id, iteration, episode, code) VALUES (?, ?, ?, ?)";

pub(super) const RECORD_EXECUTION: &str =
    "UPDATE executions SET state = 'RECORDED' WHERE id = ? AND state = 'OPEN'";

pub(super) const ABANDON_EXECUTION: &str =
    "UPDATE executions SET state = 'ABANDONED' WHERE id = ? AND state = 'OPEN'";

pub(super) const OPEN_EXECUTIONS: &str = "SELECT id, run_id FROM executions WHERE state = 'OPEN'";

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

pub(super) const LAST_EPISODE: &str =
    "SELECT episode FROM episodes WHERE run_id = ? ORDER BY iteration DESC LIMIT 1";

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
            JUDGEMENTS,
            COUNT_UNFINISHED,
            COUNT_UNFINISHED_OF_TENANT,
            CPU_RESERVED,
            ADD_STORED,
            ADD_USAGE,
            CPU_OF_DAY,
            STORED,
        ];
        let pages = [(false, false), (false, true), (true, false), (true, true)];
        let made = [run(), run_of_tenant(), complete_run(), runs_with_status()]
            .into_iter()
            .chain(pages.map(|(with_status, with_end)| page(with_status, with_end)));
        fixed
            .iter()
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
                    || (statement == JUDGEMENTS
                        && ["LIST SUBQUERY 1", "SCAN json_each VIRTUAL TABLE INDEX 1:"]
                            .contains(&step.as_str()));
                assert!(sound, "{statement}: {step}");
            }
        }
    }
}
