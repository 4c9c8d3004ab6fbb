//! Merging the layers and reporting every mistake in them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use super::sections::Config;
use super::validate::mistakes;
use crate::secret::Secret;

/// The file that is read if it exists and no other is named.
const DEFAULT_FILE: &str = "fumehood.toml";

const VARIABLE_PREFIX: &str = "FUMEHOOD_";

/// Where Docker's own tools look for the engine; a default, below the file.
const DOCKER_HOST: &str = "DOCKER_HOST";

const NO_COLOUR: &str = "NO_COLOR";

/// Not a setting: no operator is meant to use it, and no release build knows it.
#[cfg(debug_assertions)]
const FAULT_BENCH: &str = "FAULT_BENCH_DIRECTORY";

/// A configuration file is not longer than this.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What the layers are read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file named by `--config`; it has to exist.
    pub file: Option<PathBuf>,
    /// The process environment.
    pub environment: BTreeMap<String, String>,
}

/// Settings from the command line, which win: `(section, key, value)`.
#[derive(Debug, Clone, Default)]
pub struct Overrides(pub Vec<(&'static str, &'static str, Value)>);

/// Everything that is wrong with a configuration, each with where it stands and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("the configuration cannot be used:\n{}", .0.iter().map(|m| format!("  - {m}")).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError(pub Vec<String>);

impl Sources {
    /// The environment of this process and a file from the command line.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX) || name == DOCKER_HOST)
            .collect();
        Self { file, environment }
    }
}

/// Whether whoever called wants no colours, whatever the terminal can do (no-color.org).
#[must_use]
pub fn refuses_colour() -> bool {
    std::env::vars_os().any(|(name, value)| name == NO_COLOUR && !value.is_empty())
}

/// The directory of the fault bench, in debug builds only.
#[cfg(debug_assertions)]
#[must_use]
pub fn fault_bench() -> Option<PathBuf> {
    let mut variables = std::env::vars_os();
    let (_, directory) = variables.find(|(name, _)| name == FAULT_BENCH)?;
    Some(directory.into())
}

/// The secret in a variable of this process, if it is there and says something.
#[must_use]
pub fn secret_variable(name: &str) -> Option<Secret> {
    let found = std::env::vars_os().find(|(known, _)| known == name);
    let text = found?.1.into_string().ok()?;
    let text = text.trim().to_owned();
    (!text.is_empty()).then(|| Secret::new(text))
}

/// The effective configuration.
///
/// # Errors
///
/// [`ConfigError`] with every mistake that was found.
pub fn load(sources: &Sources, overrides: &Overrides) -> Result<Config, ConfigError> {
    let mut mistakes_found = Vec::new();
    let mut table = docker_host(sources);
    merge(&mut table, file_layer(sources, &mut mistakes_found));
    apply_variables(&mut table, sources, &mut mistakes_found);
    mistakes_found.extend(unusable_docker_host(&table, sources));
    for (section, key, value) in &overrides.0 {
        set(&mut table, section, key, value.clone());
    }
    check_keys(&table, &mut mistakes_found);
    let given = given_keys(&table, "execution");
    if !mistakes_found.is_empty() {
        return Err(ConfigError(mistakes_found));
    }
    let mut config = Config::deserialize(Value::Table(table))
        .map_err(|error| ConfigError(vec![error.message().to_owned()]))?;
    config.execution.fit_into_memory(&given);
    let whole_run = config.app.run_timeout_seconds;
    config.execution.fit_into_run(&given, whole_run);
    let wrong = mistakes(&config);
    if wrong.is_empty() {
        Ok(config)
    } else {
        Err(ConfigError(wrong))
    }
}

fn given_keys(table: &Table, section: &str) -> Vec<String> {
    let keys = table.get(section).and_then(Value::as_table);
    keys.into_iter()
        .flat_map(|keys| keys.keys().cloned())
        .collect()
}

fn docker_host(sources: &Sources) -> Table {
    let mut table = Table::new();
    if let Some(host) = sources
        .environment
        .get(DOCKER_HOST)
        .filter(|h| h.starts_with("unix://"))
    {
        set(&mut table, "engine", "host", Value::String(host.clone()));
    }
    table
}

/// An engine that somebody named and that cannot be used: another one is not taken in its place unasked.
fn unusable_docker_host(table: &Table, sources: &Sources) -> Option<String> {
    let host = sources.environment.get(DOCKER_HOST)?;
    let is_named = table
        .get("engine")
        .is_some_and(|keys| keys.get("host").is_some());
    (!is_named && !host.is_empty()).then(|| {
        format!(
            "{DOCKER_HOST}: {host:?} is no unix:// address, and no other can be used: unset it, or name the \
             engine's socket in engine.host"
        )
    })
}

fn file_layer(sources: &Sources, mistakes: &mut Vec<String>) -> Table {
    let path = match &sources.file {
        Some(path) => path.as_path(),
        None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
        None => return Table::new(),
    };
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            mistakes.push(format!("{name} is larger than 1 MiB"));
            return Table::new();
        }
        Ok(_) | Err(_) => {}
    }
    let read =
        std::fs::read_to_string(path).map_err(|error| format!("{name} cannot be read: {error}"));
    let parsed = read.and_then(|text| {
        text.parse::<Table>()
            .map_err(|error| format!("{name} is no TOML: {}", error.message()))
    });
    parsed.unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        Table::new()
    })
}

/// What clients are told by variables: they may be set where a daemon is started, too.
const CLIENT_VARIABLES: [&str; 2] = ["URL", "TOKEN"];

/// `FUMEHOOD_<SECTION>__<KEY>=value`: as TOML if the key takes it so, else as text.
fn apply_variables(table: &mut Table, sources: &Sources, mistakes: &mut Vec<String>) {
    for (name, text) in &sources.environment {
        let Some(path) = name.strip_prefix(VARIABLE_PREFIX) else {
            continue;
        };
        if CLIENT_VARIABLES.contains(&path) {
            continue;
        }
        let Some((section, key)) = path.split_once("__") else {
            mistakes.push(format!("{name}: write FUMEHOOD_<SECTION>__<KEY>"));
            continue;
        };
        let (section, key) = (section.to_lowercase(), key.to_lowercase());
        let literal = format!("v = {text}")
            .parse::<Table>()
            .ok()
            .and_then(|mut t| t.remove("v"));
        let fits = literal.filter(|value| check_key(&section, &key, value).is_ok());
        let value = fits.unwrap_or_else(|| Value::String(text.clone()));
        if let Err(mistake) = check_key(&section, &key, &value) {
            mistakes.push(format!("{name}: {mistake}"));
            continue;
        }
        set(table, &section, &key, value);
    }
}

fn merge(below: &mut Table, above: Table) {
    for (section, value) in above {
        match (below.get_mut(&section), value) {
            (Some(Value::Table(below)), Value::Table(above)) => below.extend(above),
            (_, value) => {
                below.insert(section, value);
            }
        }
    }
}

fn set(table: &mut Table, section: &str, key: &str, value: Value) {
    let entry = table
        .entry(section)
        .or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(section) = entry {
        section.insert(key.to_owned(), value);
    }
}

/// Reads every key on its own, so that one mistake does not hide the others.
fn check_keys(table: &Table, mistakes: &mut Vec<String>) {
    for (section, value) in table {
        let Value::Table(keys) = value else {
            mistakes.push(format!("{section}: write [{section}] with keys below it"));
            continue;
        };
        for (key, value) in keys {
            if let Err(mistake) = check_key(section, key, value) {
                mistakes.push(format!("{section}.{key}: {mistake}"));
            }
        }
        if keys.is_empty()
            && let Err(mistake) = check_section(section)
        {
            mistakes.push(format!("{section}: {mistake}"));
        }
    }
}

fn check_key(section: &str, key: &str, value: &Value) -> Result<(), String> {
    let keys = Table::from_iter([(key.to_owned(), value.clone())]);
    let table = Table::from_iter([(section.to_owned(), Value::Table(keys))]);
    read(table)
}

fn check_section(section: &str) -> Result<(), String> {
    read(Table::from_iter([(
        section.to_owned(),
        Value::Table(Table::new()),
    )]))
}

fn read(table: Table) -> Result<(), String> {
    match Config::deserialize(Value::Table(table)) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.message().trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(file: &str, variables: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.toml");
        std::fs::write(&path, file).unwrap();
        let environment = variables
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        (
            directory,
            Sources {
                file: Some(path),
                environment,
            },
        )
    }

    fn loaded(file: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let (_directory, sources) = sources(file, variables);
        load(&sources, &Overrides::default())
    }

    #[test]
    fn an_engine_that_cannot_be_used_is_refused_unless_another_one_is_named() {
        let elsewhere = ("DOCKER_HOST", "tcp://10.0.0.1:2375");
        let refused = loaded("", &[elsewhere]).unwrap_err().to_string();
        assert!(refused.contains("DOCKER_HOST"), "{refused}");
        let named = loaded("[engine]\nhost = '/run/a.sock'", &[elsewhere]).unwrap();
        assert_eq!(named.engine.host, "/run/a.sock");
        let variable = ("FUMEHOOD_ENGINE__HOST", "unix:///run/b.sock");
        let named = loaded("", &[elsewhere, variable]).unwrap();
        assert_eq!(named.engine.host, "unix:///run/b.sock");
        let usual = loaded("", &[("DOCKER_HOST", "unix:///run/c.sock")]).unwrap();
        assert_eq!(usual.engine.host, "unix:///run/c.sock");
        assert!(loaded("", &[("DOCKER_HOST", "")]).is_ok());
    }

    #[test]
    fn later_layers_win() {
        let file = "[execution]\nmemory_mb = 512\ncpus = 2\n[app]\nallowed_data_root = '/tmp'";
        let (_directory, sources) = sources(file, &[("FUMEHOOD_EXECUTION__MEMORY_MB", "768")]);
        let flags = Overrides(vec![("execution", "cpus", Value::Float(0.5))]);
        let config = load(&sources, &flags).unwrap();
        assert_eq!(config.execution.memory_mb, 768);
        assert!((config.execution.cpus - 0.5).abs() < f64::EPSILON);
        assert_eq!(config.app.allowed_data_root, [PathBuf::from("/tmp")]);
        assert_eq!(config.execution.timeout_seconds.to_bits(), 120f64.to_bits());
    }

    #[test]
    fn sizes_left_open_fit_into_the_memory() {
        let config = loaded("[execution]\nmemory_mb = 512", &[]).unwrap();
        assert_eq!(config.execution.workspace_mb, 256);
        assert_eq!(config.execution.shm_mb, 64);
        let file = "[execution]\nmemory_mb = 512\nworkspace_mb = 600";
        let error = loaded(file, &[]).unwrap_err();
        assert!(error.to_string().contains("execution.workspace_mb"));
    }

    #[test]
    fn variables_of_clients_are_no_settings_and_no_mistakes() {
        let variables = [("FUMEHOOD_URL", "http://a"), ("FUMEHOOD_TOKEN", "fh_b")];
        assert_eq!(loaded("", &variables).unwrap(), loaded("", &[]).unwrap());
        assert!(loaded("", &[("FUMEHOOD_ULR", "http://a")]).is_err());
    }

    #[test]
    fn variables_hold_text_and_lists_and_numbers() {
        let config = loaded(
            "",
            &[
                ("FUMEHOOD_APP__ALLOWED_DATA_ROOT", "[\"/tmp\", \"/var\"]"),
                ("FUMEHOOD_EXECUTION__IMAGE", "123"),
                ("FUMEHOOD_API__LISTEN", "127.0.0.1:9"),
            ],
        )
        .unwrap();
        assert_eq!(config.app.allowed_data_root.len(), 2);
        assert_eq!(config.execution.image.as_deref(), Some("123"));
        assert_eq!(config.api.listen.port(), 9);
    }

    #[test]
    fn every_mistake_is_reported_at_once_by_its_name() {
        let file = "[execution]\ntimeout_seconds = 'soon'\nmemry_mb = 1\n[nonsense]\nx = 1";
        let error = loaded(file, &[("FUMEHOOD_API__PORT", "1"), ("FUMEHOOD_X", "1")]).unwrap_err();
        let text = error.to_string();
        for name in [
            "execution.timeout_seconds",
            "execution.memry_mb",
            "nonsense",
            "FUMEHOOD_API__PORT",
            "FUMEHOOD_X",
        ] {
            assert!(text.contains(name), "{name} is missing in:\n{text}");
        }
    }

    #[test]
    fn a_named_file_has_to_exist() {
        let sources = Sources {
            file: Some("does-not-exist.toml".into()),
            ..Default::default()
        };
        let error = load(&sources, &Overrides::default()).unwrap_err();
        assert!(error.to_string().contains("does-not-exist.toml"));
    }

    #[test]
    fn the_defaults_are_valid_and_printable() {
        let config = loaded("", &[]).unwrap();
        let text = toml::to_string(&config).unwrap();
        assert_eq!(loaded(&text, &[]).unwrap(), config);
    }
}
