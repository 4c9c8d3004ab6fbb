//! Owns the fixed places of a sandbox. The daemon never overrides them; tests do.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;

use crate::error::Fatal;

/// Where things are in the sandbox.
#[derive(Debug)]
pub(crate) struct Roots {
    pub(crate) workspace: CString,
    pub(crate) dataset: CString,
}

impl Roots {
    pub(crate) fn from_arguments(
        mut arguments: impl Iterator<Item = OsString>,
    ) -> Result<Self, Fatal> {
        let mut roots = Self {
            workspace: c"/work".into(),
            dataset: c"/data".into(),
        };
        while let Some(flag) = arguments.next() {
            let place = match flag.to_str() {
                Some("--workspace") => &mut roots.workspace,
                Some("--dataset") => &mut roots.dataset,
                _ => return Err(Fatal::Arguments(format!("unknown argument {flag:?}"))),
            };
            *place = arguments
                .next()
                .and_then(|value| CString::new(value.into_vec()).ok())
                .ok_or_else(|| Fatal::Arguments(format!("{flag:?} needs a directory")))?;
        }
        Ok(roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Roots, Fatal> {
        Roots::from_arguments(arguments.iter().map(OsString::from))
    }

    #[test]
    fn the_places_are_fixed_unless_overridden() {
        let roots = parse(&[]).unwrap();
        assert_eq!(
            (roots.workspace.as_c_str(), roots.dataset.as_c_str()),
            (c"/work", c"/data")
        );
        let roots = parse(&["--dataset", "/d", "--workspace", "/w"]).unwrap();
        assert_eq!(
            (roots.workspace.as_c_str(), roots.dataset.as_c_str()),
            (c"/w", c"/d")
        );
    }

    #[test]
    fn unknown_or_unfinished_arguments_are_refused() {
        assert!(matches!(parse(&["--verbose"]), Err(Fatal::Arguments(_))));
        assert!(matches!(parse(&["--workspace"]), Err(Fatal::Arguments(_))));
    }
}
