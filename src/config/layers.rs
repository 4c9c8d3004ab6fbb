//! (being written)
/// x
pub struct ConfigError;
/// x
pub struct Overrides;
/// x
pub struct Sources;
/// x
pub fn load() {}
