//! Removing what is kept no more. The rows of a run go in one transaction, in which the names of its
//! artifact directories are written down: whoever looks sees all of a run or nothing, and what is
//! left on the disk is known whenever the daemon dies. Receipts stay, so that their chain is whole.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::access::Access;
use super::batch::Batch;
use super::failure::Flushes;
use super::kept_clock::{KeptClock, Noted, age};
use super::rows::{self, column};
use super::writer::Operation;
use super::{SqliteStore, changes, open, statements};
use crate::clock::HostTime;
use crate::ids::{ExecutionId, RunId, TenantId};
use crate::runs::retention::plan::{Kept, Totals};
use crate::runs::store::StoreError;
use crate::runs::store::retained::{KeptRuns, Retained, Thing};

#[async_trait]
impl Retained for SqliteStore {
    async fn kept_tenants(&self) -> Result<Vec<TenantId>, StoreError> {
        self.readers.read("list tenants", kept_tenants).await
    }

    async fn kept_totals(&self, tenant: &TenantId) -> Result<Totals, StoreError> {
        let tenant = tenant.clone();
        let reading = move |access: Access<'_>| totals(access, &tenant);
        self.readers.read("count what is kept", reading).await
    }

    async fn kept_oldest(&self, tenant: &TenantId, most: u32) -> Result<Vec<Kept>, StoreError> {
        let (tenant, now) = (tenant.clone(), self.writer.surroundings.clock.now());
        let reading = move |access: Access<'_>| oldest(access, &tenant, now, most);
        self.readers.read("list what is kept", reading).await
    }

    async fn remove(&self, sequences: Vec<i64>) -> Result<Vec<RunId>, StoreError> {
        self.writer.run(RemoveRuns(sequences)).await
    }

    async fn removals(
        &self,
        after: Option<&ExecutionId>,
        most: u32,
    ) -> Result<Vec<ExecutionId>, StoreError> {
        let after = after.map_or_else(String::new, ToString::to_string);
        let reading = move |access: Access<'_>| {
            access.all(statements::REMOVALS, params![after, most], |row| {
                rows::execution_id(&column::<String>(row, "execution_id")?)
            })
        };
        self.readers.read("list what is to go", reading).await
    }

    async fn removed(&self, executions: Vec<ExecutionId>) -> Result<(), StoreError> {
        self.writer.run(Removed(executions)).await
    }

    async fn note_time(&self) -> Result<(), StoreError> {
        self.writer.run(NoteTime).await
    }

    async fn sight(&self, things: Vec<Thing>) -> Result<Vec<Duration>, StoreError> {
        self.writer.run(Sight(things)).await
    }
}

/// For how long these things have been seen, read beside a daemon or without one; `None` for one that was
/// not yet. Blocks.
///
/// # Errors
///
/// [`StoreError`] if there is no store, or none of this version.
pub fn sighted(path: &Path, things: &[Thing]) -> Result<Vec<Option<Duration>>, StoreError> {
    let connection = open::beside(path)?;
    let flushes = Flushes::default();
    let access = Access::new(&connection, &flushes, "look up what was seen");
    let now = clock(access)?.now();
    let ages = things.iter().map(|thing| {
        let since = sighted_since(access, thing)?;
        Ok(since.map(|since| age(now, since)))
    });
    ages.collect()
}

/// What a store at `path` keeps, by tenant, read beside a daemon or without one. Blocks.
///
/// # Errors
///
/// [`StoreError`] if there is no store, or none of this version.
pub fn survey(path: &Path, most: u32) -> Result<Vec<(TenantId, KeptRuns)>, StoreError> {
    let connection = open::beside(path)?;
    let flushes = Flushes::default();
    let access = Access::new(&connection, &flushes, "list what is kept");
    let now = clock(access)?.now();
    let mut all = Vec::new();
    for tenant in kept_tenants(access)? {
        let kept = KeptRuns {
            totals: totals(access, &tenant)?,
            oldest: oldest(access, &tenant, now, most)?,
        };
        all.push((tenant, kept));
    }
    Ok(all)
}

/// The clock of an open database.
pub(super) fn clock(access: Access<'_>) -> Result<KeptClock, StoreError> {
    let noted = access.first(statements::KEPT_CLOCK, params![], |row| {
        Ok(Noted {
            kept: column(row, "kept")?,
            at: HostTime {
                boot: column(row, "boot")?,
                up: column(row, "up")?,
            },
        })
    })?;
    Ok(KeptClock::resume(&noted.unwrap_or_default()))
}

/// The clock as a connection has it before there is an operation.
pub(super) fn clock_of(connection: &Connection) -> Result<KeptClock, StoreError> {
    clock(Access::new(
        connection,
        &Flushes::default(),
        "read the clock",
    ))
}

/// From one to the next by the index: what is between is not read.
fn kept_tenants(access: Access<'_>) -> Result<Vec<TenantId>, StoreError> {
    let mut tenants: Vec<TenantId> = Vec::new();
    let mut after = String::new();
    while let Some(tenant) = access.first(statements::NEXT_TENANT, params![after], rows::tenant)? {
        after = tenant.to_string();
        tenants.push(tenant);
    }
    Ok(tenants)
}

fn totals(access: Access<'_>, tenant: &TenantId) -> Result<Totals, StoreError> {
    let by = params![tenant.as_str()];
    let totals = access.first(statements::KEPT_TOTALS, by, |row| {
        Ok(Totals {
            runs: unsigned(column(row, "runs")?),
            bytes: unsigned(column(row, "bytes")?),
        })
    })?;
    Ok(totals.unwrap_or_default())
}

fn oldest(
    access: Access<'_>,
    tenant: &TenantId,
    now: i64,
    most: u32,
) -> Result<Vec<Kept>, StoreError> {
    let by = params![tenant.as_str(), most];
    access.all(statements::KEPT_OLDEST, by, |row| {
        let since: i64 = column(row, "kept_since")?;
        Ok(Kept {
            sequence: column(row, "sequence")?,
            run: rows::run_id(&column::<String>(row, "id")?)?,
            age: age(now, since),
            bytes: unsigned(column(row, "kept_bytes")?),
        })
    })
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Removes runs that have ended, and notes which artifacts have to go.
struct RemoveRuns(Vec<i64>);

impl Operation for RemoveRuns {
    const NAME: &'static str = "remove runs";
    type Answer = Vec<RunId>;

    fn execute(self, batch: &mut Batch<'_>) -> Result<Vec<RunId>, StoreError> {
        let access = batch.access(Self::NAME);
        let day = changes::day(crate::clock::now().as_second());
        let mut removed = Vec::new();
        for sequence in self.0 {
            // Whatever was planned: what is going on, and what may have a sandbox, stays.
            let over = access.first(statements::REMOVABLE, params![sequence], |row| {
                let run: String = column(row, "id")?;
                let tenant: String = column(row, "tenant")?;
                Ok((run, tenant, column::<i64>(row, "kept_bytes")?))
            })?;
            let Some((run, tenant, bytes)) = over else {
                continue;
            };
            access.execute(statements::NOTE_REMOVALS, params![run])?;
            for statement in statements::REMOVE_OF_RUN {
                access.execute(statement, params![run])?;
            }
            for statement in statements::REMOVE_BY_SEQUENCE {
                access.execute(statement, params![sequence])?;
            }
            // What was never charged is not given back.
            let stored = access.first(statements::STORED, params![tenant], rows::number)?;
            let given_back = bytes.clamp(0, stored.unwrap_or(0).max(0));
            access.execute(statements::ADD_STORED, params![tenant, day, -given_back])?;
            removed.push(rows::run_id(&run)?);
        }
        Ok(removed)
    }
}

/// The artifacts of these executions are gone.
struct Removed(Vec<ExecutionId>);

impl Operation for Removed {
    const NAME: &'static str = "note what is gone";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let access = batch.access(Self::NAME);
        for execution in &self.0 {
            access.execute(statements::REMOVED, params![execution.as_str()])?;
        }
        Ok(())
    }
}

/// Writes the kept time down.
struct NoteTime;

impl Operation for NoteTime {
    const NAME: &'static str = "note the time";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let Noted { kept, at } = batch.clock().note();
        let access = batch.access(Self::NAME);
        access
            .execute(statements::NOTE_CLOCK, params![kept, at.boot, at.up])
            .map(drop)
    }
}

/// Notes what is there, and forgets what is not.
struct Sight(Vec<Thing>);

impl Operation for Sight {
    const NAME: &'static str = "note what was seen";
    type Answer = Vec<Duration>;

    fn execute(self, batch: &mut Batch<'_>) -> Result<Vec<Duration>, StoreError> {
        let (access, now) = (batch.access(Self::NAME), batch.clock().now());
        let mut gone: BTreeSet<(String, String)> = access
            .all(statements::SIGHTINGS, params![], |row| {
                Ok((column(row, "kind")?, column(row, "name")?))
            })?
            .into_iter()
            .collect();
        let mut ages = Vec::new();
        for thing in self.0 {
            let known = sighted_since(access, &thing)?;
            let Thing { kind, name, mark } = thing;
            if known.is_none() {
                access.execute(statements::SIGHT, params![kind, name, mark, now])?;
            }
            ages.push(age(now, known.unwrap_or(now)));
            gone.remove(&(kind, name));
        }
        for (kind, name) in gone {
            access.execute(statements::UNSIGHT, params![kind, name])?;
        }
        Ok(ages)
    }
}

/// The kept time at which a thing was seen first.
fn sighted_since(access: Access<'_>, thing: &Thing) -> Result<Option<i64>, StoreError> {
    let Thing { kind, name, mark } = thing;
    access.first(statements::SIGHTED, params![kind, name, mark], |row| {
        column(row, "kept_since")
    })
}
