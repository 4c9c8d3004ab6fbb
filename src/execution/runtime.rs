//! Runtimes and how much each promises (security.md row 10; docs/threat-model.md): names and an
//! order, nothing of any engine.

/// The runtime whose sandboxes have a kernel of their own.
pub const GVISOR: &str = "runsc";

/// Runtimes whose sandboxes share the host's kernel.
const SHARED: [&str; 3] = ["runc", "crun", "io.containerd.runc.v2"];

/// How far a program is from the host's kernel; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// It calls the host's kernel, through a filter.
    SharedKernel,
    /// It calls a kernel of its own, which calls the host's.
    OwnKernel,
}

/// The tier of a runtime; `None` for one that nobody here knows.
#[must_use]
pub fn tier(runtime: &str) -> Option<Tier> {
    if runtime == GVISOR {
        Some(Tier::OwnKernel)
    } else if SHARED.contains(&runtime) {
        Some(Tier::SharedKernel)
    } else {
        None
    }
}

/// Whether a sandbox that asks for this runtime has a kernel of its own; `None` is the engine's
/// default one.
#[must_use]
pub fn has_own_kernel(runtime: Option<&str>) -> bool {
    runtime.and_then(tier) == Some(Tier::OwnKernel)
}

/// The runtimes that runs may use on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offered {
    /// By name.
    pub runtimes: Vec<String>,
    /// The engine's default one, once it is known.
    pub default: Option<String>,
}

impl Offered {
    /// The runtime for a program that does not ask. An engine's default one with a kernel of its own
    /// is named, so that it stays the same when the engine's default becomes another one.
    #[must_use]
    pub fn usual(&self, configured: Option<&str>) -> Option<String> {
        let default = self.default.as_deref();
        let usual = configured.or(default.filter(|name| has_own_kernel(Some(name))));
        usual.map(str::to_owned)
    }

    /// The runtime for a program that asks for at least as much as `asked` gives: the usual one if
    /// that is enough, else the least of those that are. `None` is the engine's default.
    ///
    /// # Errors
    ///
    /// The names that can be asked for, if none is enough: nobody is silently given less.
    pub fn at_least(
        &self,
        asked: &str,
        configured: Option<&str>,
    ) -> Result<Option<String>, Vec<String>> {
        let usual = configured.or(self.default.as_deref());
        let usual_tier = match usual {
            Some(name) => tier(name),
            // Whatever it is, it is one; less than the least there is not.
            None => Some(Tier::SharedKernel),
        };
        // Two names stand for a tier; every other one is meant as it is.
        let wanted = tier(asked).filter(|_| [SHARED[0], GVISOR].contains(&asked));
        if usual == Some(asked) || (wanted.is_some() && usual_tier >= wanted) {
            return Ok(self.usual(configured));
        }
        // What the operator chose, and what may be stronger, is left for a kernel of its own alone.
        let is_free = configured.is_none() && usual_tier == Some(Tier::SharedKernel);
        let may_be_given = |name: &&String| is_free || tier(name) > Some(Tier::SharedKernel);
        let given = self.runtimes.iter().filter(may_be_given);
        let mut enough: Vec<&String> = given
            .clone()
            .filter(|name| *name == asked || (wanted.is_some() && tier(name) >= wanted))
            .collect();
        enough.sort_by_key(|name| (tier(name), name.as_str() != asked));
        if let Some(&name) = enough.first() {
            return Ok(Some(name.clone()));
        }
        let mut names: Vec<String> = given.cloned().collect();
        names.extend(usual.map(str::to_owned));
        names.sort();
        names.dedup();
        Err(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(runtimes: &[&str], default: Option<&str>) -> Offered {
        Offered {
            runtimes: runtimes.iter().map(ToString::to_string).collect(),
            default: default.map(str::to_owned),
        }
    }

    #[test]
    fn nobody_is_given_less_than_they_asked_for() {
        let both = offered(&["runc", "runsc"], Some("runc"));
        let one = offered(&["runc"], Some("runc"));
        let unknown = Offered::default();
        let kata = offered(&["kata", "runc"], Some("kata"));
        let crun = offered(&["crun", "runc"], Some("runc"));
        let strong = offered(&["runc", "runsc"], Some("runsc"));
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let usual = Ok(None);
        let named = |name: &str| Ok(Some(name.to_owned()));
        for (host, configured, asked, given) in [
            (&both, None, "runc", usual.clone()),
            (&both, None, "runsc", named("runsc")),
            (&both, Some("runsc"), "runc", named("runsc")),
            (&both, Some("runsc"), "runsc", named("runsc")),
            (&both, Some("runc"), "runsc", named("runsc")),
            (&one, None, "runsc", Err(names(&["runc"]))),
            (&strong, None, "runsc", named("runsc")),
            (&strong, None, "runc", named("runsc")),
            (&strong, Some("runc"), "runc", named("runc")),
            (&one, None, "kata", Err(names(&["runc"]))),
            (&one, None, "crun", Err(names(&["runc"]))),
            (&crun, None, "crun", named("crun")),
            (&kata, None, "runc", Err(names(&["kata"]))),
            (&crun, Some("runc"), "runsc", Err(names(&["runc"]))),
            (&crun, Some("runc"), "crun", Err(names(&["runc"]))),
            (&one, Some("kata"), "kata", named("kata")),
            (&one, Some("kata"), "runc", Err(names(&["kata"]))),
            (&both, Some("kata"), "runsc", named("runsc")),
            (&unknown, None, "runc", usual.clone()),
            (&unknown, None, "runsc", Err(Vec::new())),
            (&unknown, Some("runsc"), "runc", named("runsc")),
        ] {
            let found = host.at_least(asked, configured);
            assert_eq!(found, given, "{host:?} {configured:?} {asked}");
        }
        assert_eq!(both.usual(None), None);
        assert_eq!(both.usual(Some("kata")).as_deref(), Some("kata"));
        assert_eq!(strong.usual(None).as_deref(), Some("runsc"));
    }
}
