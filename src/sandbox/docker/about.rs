//! What the engine says of itself, for receipts: asked for again from time to time, since an engine
//! can be replaced while this daemon runs.
//!
//! An engine that does not tell is no reason not to use it: then it is not known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::models::SystemVersion;
use tokio::sync::Mutex;

use super::calls::Manner;
use super::client::{Call, Client};
use crate::execution::isolation::{EngineFacts, RuntimeFacts};
use crate::telemetry::log_chain;

/// How long an answer is good for. [`EngineFacts`] names the bound.
const FRESH: Duration = Duration::from_secs(30);

/// Runtimes by the names of the engine's configuration, where they differ from those that it shows
/// their versions under.
const OTHER_NAMES: [(&str, &str); 1] = [("io.containerd.runc.v2", "runc")];

/// The engine and the runtimes that it comes with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct About {
    version: Option<String>,
    kernel: Option<String>,
    /// Name and version.
    components: Vec<(String, String)>,
}

impl From<SystemVersion> for About {
    fn from(answer: SystemVersion) -> Self {
        let components = answer.components.unwrap_or_default();
        Self {
            version: answer.version,
            kernel: answer.kernel_version,
            components: components
                .into_iter()
                .map(|component| (component.name, component.version))
                .collect(),
        }
    }
}

impl About {
    pub(super) fn engine(&self) -> EngineFacts {
        EngineFacts {
            name: super::ENGINE_NAME.to_owned(),
            version: self.version.clone(),
            kernel: self.kernel.clone(),
        }
    }

    /// A runtime by its name on the engine, which tells the version of its own one only.
    pub(super) fn runtime(&self, name: &str) -> RuntimeFacts {
        let other = OTHER_NAMES
            .iter()
            .find(|(configured, _)| *configured == name);
        let shown = other.map_or(name, |(_, shown)| *shown);
        let component = self.components.iter().find(|(known, _)| known == shown);
        RuntimeFacts {
            name: name.to_owned(),
            version: component.map(|(_, version)| version.clone()),
        }
    }
}

/// The last answer, and when it came.
#[derive(Debug, Default)]
pub(super) struct LastAnswer(Mutex<Option<(Instant, Arc<About>)>>);

impl LastAnswer {
    /// What the engine is, as it said lately.
    pub(super) async fn get(&self, docker: &Client) -> Arc<About> {
        // Held while the engine is asked, so that it is asked once.
        let mut last = self.0.lock().await;
        if let Some((at, about)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(about);
        }
        let asked = docker.repeated(Call::Describe, Manner::Polite, || docker.version());
        let about = match asked.await {
            Ok(answer) => About::from(answer),
            Err(error) => {
                log_chain("the engine does not tell its version", &error);
                About::default()
            }
        };
        let about = Arc::new(about);
        *last = Some((Instant::now(), Arc::clone(&about)));
        about
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_found_under_both_names_and_others_have_no_version() {
        let answer = serde_json::json!({
            "Version": "20.10.24",
            "KernelVersion": "6.18",
            "Components": [
                { "Name": "Engine", "Version": "20.10.24" },
                { "Name": "runc", "Version": "1.1.5" },
            ],
        });
        let about = About::from(serde_json::from_value::<SystemVersion>(answer).unwrap());
        for name in ["runc", "io.containerd.runc.v2"] {
            let runtime = about.runtime(name);
            assert_eq!(runtime.name, name);
            assert_eq!(runtime.version.as_deref(), Some("1.1.5"));
        }
        assert_eq!(about.runtime("runsc").version, None);
        assert_eq!(about.engine().version.as_deref(), Some("20.10.24"));
        assert_eq!(about.engine().kernel.as_deref(), Some("6.18"));
    }
}
