//! `[engine]`: where sandboxes are made, and how long anybody waits for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sandbox::health::CallBounds;

/// The longest deadlines that what ends an execution may have, in seconds: together below the time
/// after which a run that was told to end is given up
/// ([`STOP_GRACE`](crate::runs::service::STOP_GRACE)).
const MAX_ENDING_SECONDS: [(&str, u64); 3] = [
    ("engine.ask_seconds", 12),
    ("engine.kill_seconds", 6),
    ("engine.remove_seconds", 16),
];

/// The longest that the end of an execution waits for the engine. An end that was not confirmed is
/// looked after for as long as it was waited for.
#[must_use]
pub fn longest_ending() -> Duration {
    let [ask, kill, remove] = MAX_ENDING_SECONDS.map(|(_, most)| most);
    Duration::from_secs(ask + 2 * kill + remove)
}

/// The longest of the other deadlines, in seconds.
const MAX_SECONDS: u64 = 300;

/// `[engine]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// The Docker Engine's socket, as a path or a `unix://` address.
    pub host: String,
    /// How long the answer to a question may take, in seconds; half of it to the simplest ones.
    pub ask_seconds: u64,
    /// How long making a sandbox may take.
    pub create_seconds: u64,
    /// How long starting one may take.
    pub start_seconds: u64,
    /// How long the end of a sandbox may take to be confirmed; then it is set aside.
    pub kill_seconds: u64,
    /// How long a removal may take before it is left to be tried later.
    pub remove_seconds: u64,
    /// How often a call that may be repeated is tried again, within its deadline.
    pub retries: u32,
    /// Calls of a kind without an answer in a row before the others of this kind are not made.
    pub circuit_failures: u32,
    /// The first pause before one is made again, in seconds; each further one is twice as long.
    pub circuit_pause_seconds: u64,
    /// The longest one.
    pub circuit_longest_pause_seconds: u64,
    /// Sandboxes that the engine did not remove before no further run is started.
    pub max_quarantined: usize,
}

impl Default for EngineSettings {
    fn default() -> Self {
        let bounds = CallBounds::default();
        Self {
            host: "unix:///var/run/docker.sock".to_owned(),
            ask_seconds: bounds.ask.as_secs(),
            create_seconds: bounds.create.as_secs(),
            start_seconds: bounds.start.as_secs(),
            kill_seconds: bounds.kill.as_secs(),
            remove_seconds: bounds.remove.as_secs(),
            retries: bounds.retries,
            circuit_failures: bounds.failures,
            circuit_pause_seconds: bounds.pause.as_secs(),
            circuit_longest_pause_seconds: bounds.longest_pause.as_secs(),
            max_quarantined: bounds.max_quarantined,
        }
    }
}

impl EngineSettings {
    /// The bounds of the engine's calls.
    #[must_use]
    pub fn bounds(&self) -> CallBounds {
        CallBounds {
            ask: Duration::from_secs(self.ask_seconds),
            create: Duration::from_secs(self.create_seconds),
            start: Duration::from_secs(self.start_seconds),
            kill: Duration::from_secs(self.kill_seconds),
            remove: Duration::from_secs(self.remove_seconds),
            retries: self.retries,
            failures: self.circuit_failures,
            pause: Duration::from_secs(self.circuit_pause_seconds),
            longest_pause: Duration::from_secs(self.circuit_longest_pause_seconds),
            max_quarantined: self.max_quarantined,
        }
    }
}

/// What is wrong with it.
pub(super) fn mistakes(engine: &EngineSettings, mistakes: &mut Vec<String>) {
    let [ask, kill, remove] = MAX_ENDING_SECONDS;
    let counts = [
        (ask.0, engine.ask_seconds, ask.1),
        ("engine.create_seconds", engine.create_seconds, MAX_SECONDS),
        ("engine.start_seconds", engine.start_seconds, MAX_SECONDS),
        (kill.0, engine.kill_seconds, kill.1),
        (remove.0, engine.remove_seconds, remove.1),
        (
            "engine.circuit_failures",
            u64::from(engine.circuit_failures),
            1000,
        ),
        (
            "engine.circuit_longest_pause_seconds",
            engine.circuit_longest_pause_seconds,
            MAX_SECONDS,
        ),
        (
            "engine.circuit_pause_seconds",
            engine.circuit_pause_seconds,
            engine.circuit_longest_pause_seconds,
        ),
        (
            "engine.max_quarantined",
            engine.max_quarantined as u64,
            1000,
        ),
    ];
    for (name, value, most) in counts {
        if !(1..=most).contains(&value) {
            mistakes.push(format!("{name}: {value} is not between 1 and {most}"));
        }
    }
    if engine.retries > 10 {
        mistakes.push("engine.retries: is at most 10".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::service::STOP_GRACE;

    #[test]
    fn the_defaults_are_right_and_are_those_of_the_engine() {
        let mut found = Vec::new();
        let settings = EngineSettings::default();
        mistakes(&settings, &mut found);
        assert_eq!(found, Vec::<String>::new());
        assert_eq!(settings.bounds(), CallBounds::default());
    }

    #[test]
    fn what_ends_an_execution_is_bounded_below_what_a_run_has_to_end() {
        assert!(longest_ending() < STOP_GRACE);
        let settings = EngineSettings {
            kill_seconds: 60,
            remove_seconds: 0,
            retries: 11,
            circuit_pause_seconds: 11,
            ..EngineSettings::default()
        };
        let mut found = Vec::new();
        mistakes(&settings, &mut found);
        for key in [
            "engine.kill_seconds: 60",
            "engine.remove_seconds: 0",
            "engine.retries",
            "engine.circuit_pause_seconds: 11 is not between 1 and 10",
        ] {
            assert!(found.iter().any(|text| text.starts_with(key)), "{found:?}");
        }
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
