//! The configuration: one struct per section, defaults as constants beside them, every mistake
//! reported at once (contract section 6).
//!
//! Layers, later over earlier: defaults, the TOML file, `FUMEHOOD_<SECTION>__<KEY>` variables,
//! flags. This is the only module that reads the process environment.

mod layers;

mod sections;

mod engine;

mod storage;

mod llm;

mod tenants;

mod interface;

mod validate;

pub use engine::{EngineSettings, longest_ending};
#[cfg(debug_assertions)]
pub use layers::fault_bench;
pub use layers::{ConfigError, Overrides, Sources, load, refuses_colour, secret_variable};
pub use llm::Llm;
pub use sections::{Api, App, Auth, Config, Doctor, Execution, LimitsSection, Pool};
pub use storage::{RetentionSection, StoreSection};
pub use tenants::Tenant;
