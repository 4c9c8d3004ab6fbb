//! The items of well-known benchmarks (security.md section 4), as far as they concern one sandbox,
//! each told by rows of the card: data, and one function.
//!
//! CIS Docker Benchmark 1.6 section 5; Pod Security Standards, restricted; what CDK and deepce look
//! for; the preconditions of SandboxEscapeBench's scenarios. Items about other containers, swarm or
//! a cluster's control plane have no row and are not here.

use serde::Serialize;

use super::controls::{Score, Verdict};

/// An item of a benchmark.
#[derive(Debug)]
pub struct Item {
    /// Which benchmark.
    pub suite: &'static str,
    /// Its number or name there.
    pub item: &'static str,
    /// In words.
    pub title: &'static str,
    /// The rows that tell.
    pub rows: &'static [&'static str],
}

/// An item with its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemScore {
    /// See [`Item::suite`].
    pub suite: &'static str,
    /// See [`Item::item`].
    pub item: &'static str,
    /// See [`Item::title`].
    pub title: &'static str,
    /// See [`Item::rows`].
    pub rows: &'static [&'static str],
    /// The worst of its rows; `None` if one of them was not judged.
    pub verdict: Option<Verdict>,
}

/// The one row that the host tells and not the sandbox.
const KERNEL: &str = "67k";

const CIS: &str = "CIS Docker 1.6";
const PSS: &str = "PSS restricted";
const CDK: &str = "CDK, deepce";
const ESCAPE: &str = "SandboxEscapeBench";

const fn item(
    suite: &'static str,
    item: &'static str,
    title: &'static str,
    rows: &'static [&'static str],
) -> Item {
    Item {
        suite,
        item,
        title,
        rows,
    }
}

/// Every item. 5.15 (restart on failure) and 5.27 (health checks) are exceptions on purpose: a
/// program that was given once runs at most once, and an image's check would be a second program.
pub const ITEMS: &[Item] = &[
    item(CIS, "5.2", "AppArmor profile", &["21"]),
    item(CIS, "5.3", "SELinux options", &["21"]),
    item(CIS, "5.4", "capabilities", &["4"]),
    item(CIS, "5.5", "not privileged", &["4", "6"]),
    item(CIS, "5.6", "no directory of the host", &["30"]),
    item(CIS, "5.8", "no privileged port", &["51"]),
    item(CIS, "5.9", "needed ports only", &["51"]),
    item(CIS, "5.10", "not the host's network", &["7", "48"]),
    item(CIS, "5.11", "memory limit", &["35"]),
    item(CIS, "5.12", "CPU weight", &["39"]),
    item(CIS, "5.13", "read-only root", &["25"]),
    item(CIS, "5.14", "bound to an interface", &["51"]),
    item(CIS, "5.15", "restart (exception: never)", &["46"]),
    item(CIS, "5.16", "not the host's processes", &["7"]),
    item(CIS, "5.17", "not the host's IPC", &["2", "33"]),
    item(CIS, "5.18", "no device of the host", &["6"]),
    item(CIS, "5.19", "ulimits", &["40"]),
    item(CIS, "5.20", "no shared propagation", &["28", "30"]),
    item(CIS, "5.21", "not the host's name", &["54"]),
    item(CIS, "5.22", "seccomp profile", &["11"]),
    item(CIS, "5.25", "control group of its own", &["8"]),
    item(CIS, "5.26", "no new privileges", &["5"]),
    item(CIS, "5.27", "health check (exception: none)", &["47"]),
    item(CIS, "5.28", "image by digest", &["31"]),
    item(CIS, "5.29", "process limit", &["38"]),
    item(CIS, "5.30", "not on docker0", &["48"]),
    item(CIS, "5.31", "not the host's user namespace", &["9"]),
    item(CIS, "5.32", "no engine socket inside", &["64"]),
    item(PSS, "volumes", "listed kinds only", &["30"]),
    item(PSS, "escalation", "allowPrivilegeEscalation: false", &["5"]),
    item(PSS, "non-root", "runAsNonRoot, runAsUser", &["1"]),
    item(PSS, "seccomp", "profile set", &["11"]),
    item(PSS, "capabilities", "drop ALL, add none", &["4"]),
    item(PSS, "namespaces", "none of the host's", &["7"]),
    item(PSS, "privileged", "false", &["6"]),
    item(PSS, "ports", "none of the host's", &["51"]),
    item(PSS, "procMount", "masked", &["22"]),
    item(PSS, "sysctls", "none, read-only", &["23"]),
    item(CDK, "capabilities", "none", &["4"]),
    item(CDK, "mounts", "nothing of the host", &["30"]),
    item(CDK, "sockets", "none of an engine", &["64"]),
    item(CDK, "environment", "nothing secret", &["53", "77"]),
    item(CDK, "metadata", "out of reach", &["49"]),
    item(CDK, "token", "no service account", &["52"]),
    item(CDK, "devices", "none", &["6"]),
    item(CDK, "network", "a namespace of its own", &["7", "48"]),
    item(CDK, "set-id files", "none that give anything", &["5"]),
    item(CDK, "system calls", "filtered", &["11", "20"]),
    item(ESCAPE, "rbac", "no token to use", &["52"]),
    item(ESCAPE, "kubectl cp", "no link comes out", &["57"]),
    item(ESCAPE, "cri-o", "no sysctl can be set", &["23"]),
    item(ESCAPE, "route_localnet", "no network", &["48"]),
    item(ESCAPE, "privileged", "no privilege", &["4", "6"]),
    item(ESCAPE, "docker socket", "not there", &["64"]),
    item(ESCAPE, "host mount", "not there", &["30", "77"]),
    item(ESCAPE, "SYS_ADMIN", "no capability", &["4", "17"]),
    item(ESCAPE, "SYS_MODULE", "no capability", &["4", "20"]),
    item(
        ESCAPE,
        "DAC_READ_SEARCH",
        "no capability, no handles",
        &["4", "17"],
    ),
    item(
        ESCAPE,
        "runc 2019-5736",
        "not root, root read-only",
        &["1", "25"],
    ),
    item(
        ESCAPE,
        "runc 2024-21626",
        "no descriptor left open",
        &["55"],
    ),
    item(ESCAPE, "host pid", "processes of its own", &["7", "16"]),
    item(ESCAPE, "release_agent", "control groups read-only", &["23"]),
    item(ESCAPE, "eBPF", "refused", &["15"]),
    item(ESCAPE, "Dirty COW", "a kernel above it", &[KERNEL]),
    item(ESCAPE, "Dirty Pipe", "a kernel above it", &[KERNEL]),
    item(ESCAPE, "packet socket", "refused", &["18"]),
];

/// Every item, told by the scores of one runtime and of the machine.
#[must_use]
pub fn of(runtime: &[Score], machine: &[Score]) -> Vec<ItemScore> {
    let verdict = |item: &Item| {
        let mut worst = Verdict::Pass;
        for row in item.rows {
            let kernel = machine.iter().filter(|score| score.number == KERNEL);
            let mut scores = runtime.iter().chain(kernel);
            let score = scores.find(|score| score.number == *row)?;
            if weight(score.verdict) > weight(worst) {
                worst = score.verdict;
            }
        }
        Some(worst)
    };
    ITEMS
        .iter()
        .map(|item| ItemScore {
            suite: item.suite,
            item: item.item,
            title: item.title,
            rows: item.rows,
            verdict: verdict(item),
        })
        .collect()
}

fn weight(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass => 0,
        Verdict::Differs => 1,
        Verdict::NotAvailable => 2,
        Verdict::Warning => 3,
        Verdict::Fail => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::controls::testing::{machine, runc};
    use crate::doctor::controls::{judge_machine, judge_sandbox};

    #[test]
    fn every_item_is_told_by_rows_that_are_judged() {
        let (runtime, machine) = (judge_sandbox(&runc()), judge_machine(&machine()));
        for score in of(&runtime, &machine) {
            assert!(score.verdict.is_some(), "{score:?}");
            assert_ne!(score.verdict, Some(Verdict::Fail), "{score:?}");
        }
        for score in of(&[], &machine) {
            assert_eq!(score.verdict.is_some(), score.rows == [KERNEL], "{score:?}");
        }
    }

    #[test]
    fn an_item_is_as_bad_as_the_worst_of_its_rows() {
        let mut facts = runc();
        facts.seen.identity.no_new_privileges = 0;
        let scores = of(&judge_sandbox(&facts), &judge_machine(&machine()));
        let failing: Vec<_> = scores
            .iter()
            .filter(|score| score.verdict == Some(Verdict::Fail))
            .map(|score| (score.suite, score.item))
            .collect();
        let expected = [(CIS, "5.26"), (PSS, "escalation"), (CDK, "set-id files")];
        assert_eq!(failing, expected);
    }
}
