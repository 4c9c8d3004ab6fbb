//! What `fumehood gc` says: pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::report::bytes;
use crate::runs::retention::plan::{Bounds, Reason, Totals};
use crate::runs::retention::{Done, Gone, Rules};
use crate::sandbox::docker::earlier::Earlier;

/// The head of the table of runs; `width` is that of the column of the tenants.
pub(super) fn head(width: usize) -> String {
    row(["RUN", "TENANT", "ENDED", "SIZE", "WHY"], width)
}

/// A line of the table: a run and why it goes.
pub(super) fn line(gone: &Gone, bounds: &Bounds, width: usize) -> String {
    let Gone {
        tenant,
        run,
        reason,
    } = gone;
    let cells = [
        run.run.to_string(),
        tenant.to_string(),
        format!("{} ago", time(run.age)),
        bytes(run.bytes),
        why(*reason, bounds),
    ];
    row(cells.each_ref().map(String::as_str), width)
}

fn row([run, tenant, age, size, why]: [&str; 5], width: usize) -> String {
    format!("{run:36}  {tenant:width$}  {age:>11}  {size:>10}  {why}\n")
}

/// The bound that a run is beyond.
fn why(reason: Reason, bounds: &Bounds) -> String {
    let bound = match reason {
        Reason::Age => bounds.age.map(|most| format!("older than {}", time(most))),
        Reason::Count => bounds
            .runs
            .map(|most| format!("more than {}", count(most, "run"))),
        Reason::Bytes => bounds
            .bytes
            .map(|most| format!("more than {}", bytes(most))),
    };
    bound.unwrap_or_else(|| reason.as_str().to_owned())
}

/// A number of things in words.
pub(super) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// A time in the largest unit that tells enough of it.
pub(super) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        172_800.. => format!("{} d", seconds / 86_400),
    }
}

/// The end of `--dry-run`: `going` of all that there is; `fresh` more would go if they were older.
pub(super) fn would(going: Totals, all: Totals, fresh: u64, rules: &Rules) -> String {
    let stays = Totals {
        runs: all.runs.saturating_sub(going.runs),
        bytes: all.bytes.saturating_sub(going.bytes),
    };
    let what = match (going.runs, fresh) {
        (0, 0) => format!("No run would be removed: {}.", none(rules)),
        (0, _) => "No run would be removed yet.".to_owned(),
        _ => format!("{} would be removed, with all artifacts.", runs(going)),
    };
    let verb = if stays.runs == 1 { "stays" } else { "stay" };
    let mut text = format!("{what} {} {verb}.\n", runs(stays));
    if fresh > 0 {
        let (them, plural) = if fresh == 1 {
            ("it has", "")
        } else {
            ("they have", "s")
        };
        text.push_str(&format!(
            "{fresh} more run{plural} will go once {them} been over for {} (retention.min_age_minutes).\n",
            time(rules.all.fresh)
        ));
    }
    text
}

/// The end of a removal.
pub(super) fn was(done: &Done, rules: &Rules) -> String {
    if done.runs == 0 && done.executions == 0 {
        return format!("No run was removed: {}.\n", none(rules));
    }
    let gone = Totals {
        runs: done.runs,
        bytes: done.bytes,
    };
    format!(
        "{} removed, with the artifacts of {}.\n",
        runs(gone),
        count(done.executions, "execution")
    )
}

/// Why none goes.
fn none(rules: &Rules) -> &'static str {
    if rules.all.are_set() || rules.own.values().any(Bounds::are_set) {
        "none is due by [retention]"
    } else {
        "none of max_age_days, max_runs and max_mb of [retention] is set"
    }
}

fn runs(totals: Totals) -> String {
    let runs = count(totals.runs, "ended run");
    format!("{runs} ({})", bytes(totals.bytes))
}

/// What the engine has of another version, and what becomes of it.
pub(super) fn earlier(earlier: &Earlier, becomes: &str) -> String {
    format!(
        "{} {} of another version: {becomes}\n",
        earlier.kind(),
        earlier.name()
    )
}

/// A run as JSON.
pub(super) fn run(gone: &Gone) -> Value {
    json!({
        "run_id": gone.run.run.to_string(),
        "tenant": gone.tenant.to_string(),
        "age_seconds": gone.run.age.as_secs(),
        "bytes": gone.run.bytes,
        "reason": gone.reason.as_str(),
    })
}

/// What the engine has of another version as JSON.
pub(super) fn of_engine(earlier: &Earlier, removed: bool) -> Value {
    json!({ "kind": earlier.kind(), "name": earlier.name(), "removed": removed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{RunId, TenantId};
    use crate::runs::retention::plan::Kept;

    fn bounded() -> Rules {
        Rules {
            all: Bounds {
                age: Some(Duration::from_secs(7 * 86_400)),
                runs: Some(1),
                bytes: Some(50 << 30),
                fresh: Duration::from_secs(3600),
            },
            ..Rules::default()
        }
    }

    #[test]
    fn each_reason_names_its_bound() {
        let why = |reason| why(reason, &bounded().all);
        assert_eq!(why(Reason::Age), "older than 7 d");
        assert_eq!(why(Reason::Count), "more than 1 run");
        assert_eq!(why(Reason::Bytes), "more than 50.0 GiB");
    }

    #[test]
    fn a_line_has_its_cells_below_the_head() {
        let gone = Gone {
            tenant: TenantId::default(),
            run: Kept {
                sequence: 1,
                run: RunId::random(),
                age: Duration::from_secs(86_400 * 9),
                bytes: 1536,
            },
            reason: Reason::Age,
        };
        let (head, line) = (head(9), line(&gone, &bounded().all, 9));
        for (name, cell) in [("TENANT", "default"), ("WHY", "older than 7 d")] {
            assert_eq!(head.find(name), line.find(cell), "{head}{line}");
        }
        assert!(line.contains("  9 d ago     1.5 KiB  older"), "{line}");
        assert!(line.starts_with(&gone.run.run.to_string()));
    }

    #[test]
    fn the_end_says_what_goes_what_stays_and_why_nothing_goes() {
        let totals = |runs, bytes| Totals { runs, bytes };
        let all = totals(3, 3072);
        let unset = would(totals(0, 0), all, 0, &Rules::default());
        assert_eq!(
            unset,
            "No run would be removed: none of max_age_days, max_runs and max_mb of [retention] is set. \
             3 ended runs (3.0 KiB) stay.\n"
        );
        let some = would(totals(2, 2048), all, 0, &bounded());
        assert_eq!(
            some,
            "2 ended runs (2.0 KiB) would be removed, with all artifacts. 1 ended run (1.0 KiB) stays.\n"
        );
        let fresh = would(totals(0, 0), all, 2, &bounded());
        assert_eq!(
            fresh,
            "No run would be removed yet. 3 ended runs (3.0 KiB) stay.\n\
             2 more runs will go once they have been over for 60 min (retention.min_age_minutes).\n"
        );
        let done = Done {
            runs: 1,
            bytes: 1024,
            executions: 2,
            left: 0,
        };
        assert_eq!(
            was(&done, &bounded()),
            "1 ended run (1.0 KiB) removed, with the artifacts of 2 executions.\n"
        );
        let nothing = was(&Done::default(), &bounded());
        assert_eq!(nothing, "No run was removed: none is due by [retention].\n");
    }

    #[test]
    fn times_are_in_a_unit_that_tells_enough() {
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7200, "2 h"),
            (172_800, "2 d"),
        ] {
            assert_eq!(time(Duration::from_secs(seconds)), text);
        }
    }
}
