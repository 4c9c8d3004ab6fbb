//! `fumehood gc`: what the daemon removes in the background, now and without a daemon; or what would
//! go, beside one.

mod words;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{exit, report};
use crate::app::{
    AppError, EarlierDone, Keeping, Workshop, earlier, notary, store_path, store_settings, things,
};
use crate::config::Config;
use crate::ids::InstanceId;
use crate::runs::retention::plan::{Bounds, Totals, plan};
use crate::runs::retention::{Gone, Rules};
use crate::runs::store::sqlite::{SqliteStore, retention};
use crate::runs::store::{Store as _, StoreError};
use crate::sandbox::EngineError;
use crate::sandbox::docker::DockerEngine;
use crate::sandbox::docker::earlier::Earlier;

/// Runs of a tenant that are looked at for `--dry-run`.
const MOST_SHOWN: u32 = 10_000;

/// Runs that the list of `--json` has; its totals count the others, too.
const MOST_LISTED: usize = 100_000;

/// Remove what [retention] keeps no longer
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 if nothing that was to go is left; 1 if artifacts could not be removed, or \
    the engine could not be asked; 74 if the output could not be written; 69 if the store cannot be used, as while a daemon has it, which does \
    all this itself; 78 if the store is damaged or of a newer version, or the configuration cannot be used."
)]
pub(super) struct Gc {
    /// Only tell what would go; may be called while a daemon runs
    #[arg(long)]
    dry_run: bool,
    /// Print what went, or would go, as JSON
    #[arg(long)]
    json: bool,
}

impl Gc {
    pub(super) async fn execute(self, config: Config) -> ExitCode {
        let path = store_path(&config);
        if !path.exists() {
            report::failure(&format!(
                "there is no store at {} yet: start the daemon once with `fumehood serve`, or name it \
                 with app.state_dir or store.path",
                path.display()
            ));
            return ExitCode::from(exit::UNAVAILABLE);
        }
        let done = if self.dry_run {
            self.tell(&config).await
        } else {
            self.remove(&config).await
        };
        done.unwrap_or_else(|error| {
            report::error(&error);
            if matches!(error, AppError::Store(StoreError::InUse { .. })) {
                report::note(
                    "  (the daemon removes what is kept no longer by itself, every \
                     retention.every_seconds; --dry-run works beside it)",
                );
            }
            ExitCode::from(exit::of(&error))
        })
    }

    async fn remove(&self, config: &Config) -> Result<ExitCode, AppError> {
        let workshop = Workshop::open(config, "instance").await?;
        let notary = notary(config, workshop.instance.clone()).await?;
        let settings = store_settings(config);
        let store = SqliteStore::open_with(&store_path(config), notary, settings).await?;
        let store = Arc::new(store);
        let retained = Arc::clone(&store) as _;
        let keeping = Keeping::new(config, &workshop, retained).without_pauses();
        let rules = Rules::of(config);
        let mut page = Page::new(self.json, &rules, config);
        let stop = CancellationToken::new();
        let passed = keeping.pass(&stop, &mut |gone| page.show(gone)).await;
        let engine = match passed {
            Ok(_) => keeping.remove_earlier().await,
            Err(_) => Ok(EarlierDone::default()),
        };
        store.close().await;
        let (done, mut engine) = (passed?, engine?);
        let asked = engine.unanswered.take();
        if self.json {
            let gone = engine.gone.iter().map(|one| words::of_engine(one, true));
            let stays = engine.stays.iter().map(|one| words::of_engine(one, false));
            let all = json!({
                "dry_run": false,
                "runs": page.runs,
                "total": { "runs": done.runs, "bytes": done.bytes },
                "artifacts": { "removed": done.executions, "left": done.left },
                "engine": gone.chain(stays).collect::<Vec<_>>(),
            });
            page.say(&format!("{all}\n"));
        } else {
            page.say(&words::was(&done, &rules));
            for earlier in &engine.gone {
                page.say(&words::earlier(earlier, "removed"));
            }
            for earlier in &engine.stays {
                page.say(&words::earlier(earlier, "stays, a container uses it"));
            }
        }
        if let Some(error) = &asked {
            report::engine_error(error, &config.engine.host);
        }
        if done.left > 0 {
            report::failure(&format!(
                "the artifacts of {} could not be removed: check app.output_root and its permissions, and \
                 call this again",
                words::count(done.left, "execution")
            ));
        }
        Ok(page.ended(if asked.is_some() || done.left > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        }))
    }

    async fn tell(&self, config: &Config) -> Result<ExitCode, AppError> {
        let path = store_path(config);
        let surveying = move || retention::survey(&path, MOST_SHOWN);
        let kept = tokio::task::spawn_blocking(surveying).await??;
        let rules = Rules::of(config);
        let mut page = Page::new(self.json, &rules, config);
        let (mut all, mut going, mut fresh) = (Totals::default(), Totals::default(), 0);
        for (tenant, kept) in kept {
            let bounds = rules.bounds(&tenant);
            all.runs += kept.totals.runs;
            all.bytes += kept.totals.bytes;
            let planned = plan(&bounds, kept.totals, &kept.oldest);
            let of_any_age = Bounds {
                fresh: Duration::ZERO,
                ..bounds
            };
            let later = plan(&of_any_age, kept.totals, &kept.oldest).len();
            fresh += later.saturating_sub(planned.len()) as u64;
            for (run, reason) in planned {
                going.runs += 1;
                going.bytes += run.bytes;
                page.show(Gone {
                    tenant: tenant.clone(),
                    run,
                    reason,
                });
            }
        }
        let (engine, asked) = engine(config).await?;
        if self.json {
            let engine = engine.iter().map(|one| words::of_engine(one, false));
            let all = json!({
                "dry_run": true,
                "runs": page.runs,
                "total": { "runs": going.runs, "bytes": going.bytes },
                "engine": engine.collect::<Vec<_>>(),
            });
            page.say(&format!("{all}\n"));
        } else {
            page.say(&words::would(going, all, fresh, &rules));
            for earlier in &engine {
                page.say(&words::earlier(
                    earlier,
                    "would be removed, unless a container uses it",
                ));
            }
        }
        if let Some(error) = &asked {
            report::engine_error(error, &config.engine.host);
            return Ok(page.ended(ExitCode::FAILURE));
        }
        Ok(page.ended(ExitCode::SUCCESS))
    }
}

/// The runs as they are told of: a table that grows while they go, or a list for the end.
struct Page<'r> {
    json: bool,
    rules: &'r Rules,
    /// Of the column of the tenants.
    width: usize,
    has_head: bool,
    runs: Vec<Value>,
    /// Why a part of it could not be written.
    lost: Option<io::Error>,
}

impl<'r> Page<'r> {
    fn new(json: bool, rules: &'r Rules, config: &Config) -> Self {
        let names = config.tenants.keys().map(String::len);
        let width = names.max().unwrap_or(0).max("default".len());
        Self {
            json,
            rules,
            width,
            has_head: false,
            runs: Vec::new(),
            lost: None,
        }
    }

    /// What goes is told of as long as somebody reads it; it goes in any case.
    fn say(&mut self, text: &str) {
        if self.lost.is_none() {
            self.lost = report::print(text).err();
        }
    }

    /// The exit code of a command that ends with this one, if all that it said was written.
    fn ended(self, code: ExitCode) -> ExitCode {
        self.lost
            .map_or(code, |lost| report::unwritten(&lost, code))
    }

    fn show(&mut self, gone: Gone) {
        if self.json {
            if self.runs.len() < MOST_LISTED {
                self.runs.push(words::run(&gone));
            }
            return;
        }
        if !self.has_head {
            self.say(&words::head(self.width));
            self.has_head = true;
        }
        let bounds = self.rules.bounds(&gone.tenant);
        self.say(&words::line(&gone, &bounds, self.width));
    }
}

/// What the engine has had of other versions for too long, and why it does not tell; nothing where nobody
/// asked for that.
async fn engine(config: &Config) -> Result<(Vec<Earlier>, Option<EngineError>), AppError> {
    let kept = earlier(config);
    if !kept.is_set() {
        return Ok((Vec::new(), None));
    }
    // Nothing is made: what is looked for belongs to no instance.
    let engine = DockerEngine::new(&config.engine.host, InstanceId::random());
    let found = match engine.earlier(&kept).await {
        Ok(found) => found,
        Err(error) => return Ok((Vec::new(), Some(error))),
    };
    let (path, seen) = (store_path(config), things(&found));
    let looking = move || retention::sighted(&path, &seen);
    let ages = tokio::task::spawn_blocking(looking).await??;
    let over = found.into_iter().zip(ages).filter(|(found, age)| {
        // What was not seen yet begins to age with the next pass.
        age.is_some_and(|age| kept.is_over(&found.earlier, age))
    });
    Ok((over.map(|(found, _)| found.earlier).collect(), None))
}
