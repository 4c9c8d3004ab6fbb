//! Who writes programs, as a configuration asks for it.

use std::io::Read as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::AppError;
use crate::config::{Config, Llm};
use crate::orchestrator::generated::{Crew, LoopBounds};
use crate::orchestrator::llm::{ClientSettings, ModelClient, Pace, Prices};
use crate::orchestrator::{Executor, Generated};

/// A file of certificates is not larger.
const MAX_CERTIFICATES: u64 = 1 << 20;

/// The loop, whose programs are run by `executor`.
pub(super) fn generated(
    config: &Config,
    executor: Executor,
    model: Option<ModelClient>,
) -> Generated {
    let tokens = config.llm.max_tokens_per_run;
    let bounds = LoopBounds {
        wall: Duration::from_secs(config.app.run_timeout_seconds),
        tokens: (tokens > 0).then_some(tokens),
    };
    let runner = Arc::new(executor);
    Generated::new(runner, Crew::mock(), Crew::real(model), bounds)
}

/// The model that is configured, if there is one.
pub(super) async fn client(llm: &Llm) -> Result<Option<ModelClient>, AppError> {
    let (Some(base_url), Some(model)) = (&llm.base_url, &llm.model) else {
        return Ok(None);
    };
    let certificates = match llm.ca_file.clone() {
        None => None,
        Some(path) => {
            let read = spawn_blocking(move || (read(&path), path)).await?;
            let (read, path) = read;
            Some(read.map_err(|source| AppError::Certificates { path, source })?)
        }
    };
    let prices = llm
        .prompt_price_per_million
        .zip(llm.completion_price_per_million);
    let settings = ClientSettings {
        base_url: base_url.clone(),
        model: model.clone(),
        key: llm.key.clone(),
        extra_certificates: certificates,
        prices: prices.map(|(prompt, completion)| Prices { prompt, completion }),
        pace: Pace::default(),
    };
    // Reads the system's certificates.
    let client = spawn_blocking(move || ModelClient::new(&settings)).await??;
    info!(llm.model = %model, llm.has_key = llm.key.is_some(), "programs can be written by a model");
    if llm.key.is_some() && base_url.starts_with("http://") && !is_loopback(base_url) {
        warn!(
            "the model's key and the prompts travel unencrypted: use an https address in llm.base_url"
        );
    }
    Ok(Some(client))
}

fn is_loopback(base_url: &str) -> bool {
    let rest = base_url.trim_start_matches("http://");
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    let is_address = || {
        host.parse()
            .is_ok_and(|address: Ipv4Addr| address.is_loopback())
    };
    host.eq_ignore_ascii_case("localhost") || rest.starts_with("[::1]") || is_address()
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(MAX_CERTIFICATES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_loopback() {
        for own in [
            "http://127.0.0.1:8080/v1",
            "http://localhost/v1",
            "http://[::1]:1/v1",
        ] {
            assert!(is_loopback(own), "{own}");
        }
        for other in [
            "http://127.0.0.1.example/v1",
            "http://localhost.example",
            "http://10.0.0.1:127/v1",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
