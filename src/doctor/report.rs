//! The score card: as data, as JSON and as [`text`]. Pure.

pub mod text;

use serde::Serialize;

use super::controls::kernel::profile_hash;
use super::controls::{Score, missing};
use super::evaluation::{self, ItemScore};
use super::facts::MachineFacts;

/// The result of an examination.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    /// The daemon's version.
    pub version: &'static str,
    /// The engine.
    pub engine: EngineHead,
    /// Of the seccomp profile that sandboxes are asked for with.
    pub seccomp_profile_sha256: String,
    /// Whether every mandatory control holds on every runtime that was examined.
    pub passed: bool,
    /// Engine and host.
    pub machine: Vec<Score>,
    /// One for each runtime.
    pub runtimes: Vec<RuntimeCard>,
}

/// Which engine it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EngineHead {
    /// Its version.
    pub version: String,
    /// The version of its interface.
    pub api_version: String,
    /// Version of its runc.
    pub runc_version: Option<String>,
    /// Version of control groups.
    pub cgroup_version: Option<u8>,
    /// Release of the host's kernel.
    pub kernel: Option<String>,
}

/// What one runtime's sandboxes are like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuntimeCard {
    /// Its name.
    pub runtime: String,
    /// Every control.
    pub controls: Vec<Score>,
    /// Benchmarks, told by these.
    pub evaluation: Vec<ItemScore>,
}

impl Card {
    /// A card of what was judged.
    #[must_use]
    pub fn new(
        facts: &MachineFacts,
        machine: Vec<Score>,
        runtimes: Vec<(String, Vec<Score>)>,
    ) -> Self {
        let runtimes: Vec<RuntimeCard> = runtimes
            .into_iter()
            .map(|(runtime, controls)| RuntimeCard {
                evaluation: evaluation::of(&controls, &machine),
                runtime,
                controls,
            })
            .collect();
        // Nothing that was not examined has passed.
        let passed = !runtimes.is_empty()
            && runtimes
                .iter()
                .all(|card| !card.controls.is_empty() && missing(&card.controls).next().is_none());
        Self {
            version: env!("CARGO_PKG_VERSION"),
            engine: EngineHead {
                version: facts.engine.version.clone(),
                api_version: facts.engine.api_version.clone(),
                runc_version: facts.engine.runc_version.clone(),
                cgroup_version: facts.engine.cgroup_version,
                kernel: facts.host.kernel.clone(),
            },
            seccomp_profile_sha256: profile_hash(),
            passed,
            machine,
            runtimes,
        }
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::controls::testing::{machine, runc, runsc};
    use crate::doctor::controls::{every_setting_applied, judge_machine, judge_sandbox};

    pub(super) fn card(spoil: bool) -> Card {
        let mut facts = runc();
        if spoil {
            facts.seen.identity.no_new_privileges = 0;
            facts.seen.identity.devices.push("x\x1b[2J".repeat(30));
        }
        let machine = machine();
        let runtimes = vec![
            ("runc".to_owned(), judge_sandbox(&facts)),
            ("runsc".to_owned(), judge_sandbox(&runsc())),
        ];
        Card::new(&machine, judge_machine(&machine), runtimes)
    }

    #[test]
    fn a_machine_reads_the_same() {
        let json = card(true).json();
        assert_eq!(json["passed"], false);
        let controls = json["runtimes"][0]["controls"].as_array().unwrap();
        let failing: Vec<_> = controls
            .iter()
            .filter(|score| score["verdict"] == "fail")
            .map(|score| score["number"].as_str().unwrap())
            .collect();
        assert_eq!(failing, ["5", "6"]);
        assert_eq!(json["runtimes"][0]["controls"][0]["mark"], "M");
        let refused = every_setting_applied(Some("HostConfig.PidsLimit"));
        let machine = machine();
        let runtimes = vec![("runc".to_owned(), vec![refused])];
        let refused = Card::new(&machine, Vec::new(), runtimes);
        assert!(!refused.passed);
        assert!(!Card::new(&machine, Vec::new(), Vec::new()).passed);
    }
}
