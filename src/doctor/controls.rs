//! The controls as data: number, mark, title, what is expected, the remedy, and a pure function
//! from facts to a finding. The numbers are the rows of the security bar, security.md section 1.
//!
//! Each area has a table of its own. What a runtime with a kernel of its own answers otherwise is
//! part of each function: that is a difference, not a failure.

mod findings;

pub mod identity;

pub mod kernel;

pub mod files;

pub mod resources;

pub mod network;

pub mod machine;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub(crate) use self::findings::harmless;

use self::findings::SETTINGS;
use super::facts::{MachineFacts, SandboxFacts};

/// How much a control weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Mark {
    /// Mandatory: without it no run is taken.
    #[serde(rename = "M")]
    Mandatory,
    /// Mandatory to report: what is missing is a warning, as the bar has it for rows 66 and 68.
    #[serde(rename = "M (report)")]
    Reported,
    /// Of the strong tier, or where the host offers it.
    #[serde(rename = "S")]
    Strong,
}

impl Mark {
    /// As the security bar writes it.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::Mandatory => "M",
            Self::Reported => "m",
            Self::Strong => "S",
        }
    }
}

/// The areas of the card, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Area {
    /// Section A.
    Identity,
    /// Section B.
    Kernel,
    /// Sections C and F.
    Files,
    /// Section D.
    Resources,
    /// Section E.
    Network,
    /// Section G: the engine.
    Engine,
    /// Section G: the host.
    Host,
}

impl Area {
    /// As a heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Identity => "Identity and privilege",
            Self::Kernel => "Kernel surface",
            Self::Files => "File system and results",
            Self::Resources => "Resources",
            Self::Network => "Network and environment",
            Self::Engine => "Engine",
            Self::Host => "Host",
        }
    }
}

/// What a control's function found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// In one word.
    pub outcome: Outcome,
    /// What was seen, in a few words.
    pub seen: String,
}

/// Findings in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As expected.
    Holds,
    /// Not as expected.
    Broken,
    /// The host does not offer it.
    Absent,
    /// As this runtime has it, which is other than what the bar says for the host's kernel.
    Differs,
}

/// The verdicts of the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// It holds.
    #[serde(rename = "pass")]
    Pass,
    /// A mandatory control does not hold.
    #[serde(rename = "fail")]
    Fail,
    /// Another one does not.
    #[serde(rename = "warning")]
    Warning,
    /// The host does not offer it.
    #[serde(rename = "not available")]
    NotAvailable,
    /// It differs by runtime.
    #[serde(rename = "differs by runtime")]
    Differs,
}

impl Verdict {
    fn of(mark: Mark, outcome: Outcome) -> Self {
        match (outcome, mark) {
            (Outcome::Holds, _) => Self::Pass,
            (Outcome::Broken, Mark::Mandatory) => Self::Fail,
            (Outcome::Broken, Mark::Reported | Mark::Strong) => Self::Warning,
            (Outcome::Absent, _) => Self::NotAvailable,
            (Outcome::Differs, _) => Self::Differs,
        }
    }

    /// As the card shows it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::Warning => "warning",
            Self::NotAvailable => "n/a",
            Self::Differs => "differs",
        }
    }
}

/// One control, judged by facts `F`.
#[derive(Debug)]
pub struct Control<F> {
    /// The row.
    pub number: &'static str,
    /// Its weight.
    pub mark: Mark,
    /// Where it stands on the card.
    pub area: Area,
    /// What it is.
    pub title: &'static str,
    /// What has to be seen.
    pub expected: &'static str,
    /// What to do if it is not.
    pub remedy: &'static str,
    /// From facts to a finding.
    pub judge: fn(&F) -> Finding,
}

/// A control with its verdict: a line of the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Score {
    /// See [`Control::number`].
    pub number: &'static str,
    /// See [`Control::mark`].
    pub mark: Mark,
    /// See [`Control::area`].
    pub area: Area,
    /// See [`Control::title`].
    pub control: &'static str,
    /// See [`Control::expected`].
    pub expected: &'static str,
    /// What was seen.
    pub seen: String,
    /// The verdict.
    pub verdict: Verdict,
    /// See [`Control::remedy`]; `None` where there is nothing to do.
    pub remedy: Option<&'static str>,
}

impl<F> Control<F> {
    fn score(&self, facts: &F) -> Score {
        let Finding { outcome, seen } = (self.judge)(facts);
        let verdict = Verdict::of(self.mark, outcome);
        let asks_for_more = match verdict {
            Verdict::Fail | Verdict::Warning => true,
            Verdict::Pass | Verdict::NotAvailable | Verdict::Differs => false,
        };
        Score {
            number: self.number,
            mark: self.mark,
            area: self.area,
            control: self.title,
            expected: self.expected,
            seen: harmless(&seen),
            verdict,
            remedy: asks_for_more.then_some(self.remedy),
        }
    }
}

/// The tables about sandboxes, in the order of the card.
#[must_use]
pub fn of_sandboxes() -> Vec<&'static Control<SandboxFacts>> {
    [
        identity::TABLE,
        kernel::TABLE,
        files::TABLE,
        resources::TABLE,
        network::TABLE,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The control that comes before all others (invariant 6): a sandbox of which the engine says that
/// some setting is another one than was asked for is not even started. `differing` names those.
#[must_use]
pub fn every_setting_applied(differing: Option<&str>) -> Score {
    Score {
        number: "all",
        mark: Mark::Mandatory,
        area: Area::Identity,
        control: "every setting is applied",
        expected: "inspection shows what was asked for",
        seen: harmless(differing.unwrap_or("it does")),
        verdict: if differing.is_some() {
            Verdict::Fail
        } else {
            Verdict::Pass
        },
        remedy: differing.map(|_| SETTINGS),
    }
}

/// Judges the sandboxes of one runtime.
#[must_use]
pub fn judge_sandbox(facts: &SandboxFacts) -> Vec<Score> {
    let controls = of_sandboxes().into_iter();
    controls.map(|control| control.score(facts)).collect()
}

/// Judges engine and host.
#[must_use]
pub fn judge_machine(facts: &MachineFacts) -> Vec<Score> {
    [machine::engine::TABLE, machine::host::TABLE]
        .into_iter()
        .flatten()
        .map(|control| control.score(facts))
        .collect()
}

/// The mandatory controls that do not hold.
pub fn missing(scores: &[Score]) -> impl Iterator<Item = &Score> {
    scores.iter().filter(|score| score.verdict == Verdict::Fail)
}
