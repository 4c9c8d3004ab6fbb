//! The model that writes programs: the section, its defaults and its mistakes.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::runs::request::LlmMode;
use crate::secret::Secret;

/// `[llm]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Llm {
    /// Where generated code comes from.
    pub mode: LlmMode,
    /// Base address of an OpenAI-compatible interface, such as `https://host/v1`.
    pub base_url: Option<String>,
    /// Name of the model.
    pub model: Option<String>,
    /// The environment variable that holds the key.
    pub api_key_env: String,
    /// Certificates, as PEM, to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Tokens that one run may use, sent and received; 0 is no bound.
    pub max_tokens_per_run: u64,
    /// What a million tokens sent cost, in any unit; with the next, runs tell what they cost.
    pub prompt_price_per_million: Option<f64>,
    /// What a million tokens received cost.
    pub completion_price_per_million: Option<f64>,
    /// The key itself. Comes from the environment or from standard input, never from a file, and goes
    /// to the model's client only.
    #[serde(skip)]
    pub key: Option<Secret>,
}

impl Default for Llm {
    fn default() -> Self {
        Self {
            mode: LlmMode::Mock,
            base_url: None,
            model: None,
            api_key_env: "OPENAI_API_KEY".to_owned(),
            ca_file: None,
            max_tokens_per_run: 0,
            prompt_price_per_million: None,
            completion_price_per_million: None,
            key: None,
        }
    }
}

impl Llm {
    /// Whether there is a model to ask.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.base_url.is_some() && self.model.is_some()
    }
}

pub(super) fn mistakes(llm: &Llm, mistakes: &mut Vec<String>) {
    if llm.mode == LlmMode::Real && !llm.is_configured() {
        mistakes.push(
            "llm.mode: \"real\" needs llm.base_url and llm.model; set both or use \"mock\""
                .to_owned(),
        );
    }
    if let Some(address) = &llm.base_url
        && !is_base_address(address)
    {
        mistakes.push(
            "llm.base_url: has to be an http or https address without user, query or fragment, such as \
             https://host/v1"
                .to_owned(),
        );
    }
    if llm
        .model
        .as_ref()
        .is_some_and(|model| model.trim().is_empty())
    {
        mistakes.push("llm.model: has to be the name of a model".to_owned());
    }
    let name = &llm.api_key_env;
    if name.is_empty() || name.contains(['=', '\0']) {
        mistakes.push("llm.api_key_env: has to be the name of a variable".to_owned());
    }
    let prices = [
        ("llm.prompt_price_per_million", llm.prompt_price_per_million),
        (
            "llm.completion_price_per_million",
            llm.completion_price_per_million,
        ),
    ];
    for (key, price) in prices {
        if price.is_some_and(|price| !(price.is_finite() && price >= 0.0)) {
            mistakes.push(format!("{key}: has to be 0 or more"));
        }
    }
    if llm.prompt_price_per_million.is_some() != llm.completion_price_per_million.is_some() {
        mistakes.push(
            "llm.prompt_price_per_million and llm.completion_price_per_million: set both or none"
                .to_owned(),
        );
    }
}

/// A key in the address would be in logs and errors; a query would be cut off.
fn is_base_address(address: &str) -> bool {
    let rest = address
        .strip_prefix("https://")
        .or_else(|| address.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '?' | '#' | '\\');
        !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.chars().all(is_plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(change: impl FnOnce(&mut Llm)) -> String {
        let mut llm = Llm {
            base_url: Some("https://models.example/v1".to_owned()),
            model: Some("m".to_owned()),
            ..Llm::default()
        };
        change(&mut llm);
        let mut found = Vec::new();
        mistakes(&llm, &mut found);
        found.join("\n")
    }

    #[test]
    fn each_mistake_names_its_key() {
        assert_eq!(wrong(|llm| llm.mode = LlmMode::Real), "");
        assert_eq!(wrong(|llm| *llm = Llm::default()), "");
        let no_model = wrong(|llm| {
            llm.mode = LlmMode::Real;
            llm.model = None;
        });
        assert!(no_model.contains("llm.mode"));
        assert!(wrong(|llm| llm.model = Some(" ".to_owned())).contains("llm.model"));
        assert!(wrong(|llm| llm.api_key_env = String::new()).contains("llm.api_key_env"));
        let half = wrong(|llm| llm.prompt_price_per_million = Some(1.0));
        assert!(half.contains("llm.completion_price_per_million"));
        let odd = wrong(|llm| llm.prompt_price_per_million = Some(f64::NAN));
        assert!(odd.contains("llm.prompt_price_per_million: has to be"));
    }

    #[test]
    fn an_address_is_one_that_hides_nothing() {
        for good in [
            "http://127.0.0.1:8080/v1",
            "https://host",
            "https://[::1]:1/v1/",
        ] {
            assert!(is_base_address(good), "{good}");
        }
        for bad in [
            "",
            "host",
            "ftp://host",
            "https://",
            "https:///v1",
            "http://user:key@host/v1",
            "http://host/v1?key=x",
            "http://host/#x",
            "http://ho st",
            "http://:80",
        ] {
            assert!(!is_base_address(bad), "{bad}");
        }
    }

    #[test]
    fn the_key_is_never_written_down() {
        let llm = Llm {
            key: Some(Secret::new("CANARY".to_owned())),
            ..Llm::default()
        };
        assert!(!toml::to_string(&llm).unwrap().contains("CANARY"));
        assert!(!format!("{llm:?}").contains("CANARY"));
        assert!(toml::from_str::<Llm>("key = 'CANARY'").is_err());
    }
}
