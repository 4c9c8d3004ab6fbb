//! Owns the fixed places and times of a sandbox. The daemon never overrides them; tests do.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use crate::error::Fatal;

/// Where things are in the sandbox, and how long they may take.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) workspace: CString,
    pub(crate) dataset: CString,
    /// The directory of the `sitecustomize.py` that makes an interpreter wait.
    pub(crate) preload: CString,
    /// How long an interpreter may take until it waits.
    pub(crate) importing: Duration,
    /// How long the daemon may say nothing before the start: one that died leaves no sandbox that
    /// waits for ever.
    pub(crate) preparing: Duration,
}

impl Settings {
    pub(crate) fn from_arguments(
        mut arguments: impl Iterator<Item = OsString>,
    ) -> Result<Self, Fatal> {
        let mut settings = Self {
            workspace: c"/work".into(),
            dataset: c"/data".into(),
            preload: c"/fumehood/preload".into(),
            importing: Duration::from_secs(60),
            preparing: Duration::from_secs(2 * 60 * 60),
        };
        while let Some(flag) = arguments.next() {
            let value = arguments.next();
            let set = match flag.to_str() {
                Some("--workspace") => place(&mut settings.workspace, value),
                Some("--dataset") => place(&mut settings.dataset, value),
                Some("--preload") => place(&mut settings.preload, value),
                Some("--importing-seconds") => time(&mut settings.importing, value),
                Some("--preparing-seconds") => time(&mut settings.preparing, value),
                _ => return Err(Fatal::Arguments(format!("unknown argument {flag:?}"))),
            };
            set.ok_or_else(|| Fatal::Arguments(format!("{flag:?} needs a value")))?;
        }
        Ok(settings)
    }
}

fn place(place: &mut CString, value: Option<OsString>) -> Option<()> {
    *place = CString::new(value?.into_vec()).ok()?;
    Some(())
}

fn time(time: &mut Duration, seconds: Option<OsString>) -> Option<()> {
    *time = Duration::from_secs(seconds?.to_str()?.parse().ok()?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Settings, Fatal> {
        Settings::from_arguments(arguments.iter().map(OsString::from))
    }

    #[test]
    fn places_and_times_are_fixed_unless_overridden() {
        let places = |settings: &Settings| {
            [&settings.workspace, &settings.dataset, &settings.preload].map(Clone::clone)
        };
        let times = |settings: &Settings| (settings.importing, settings.preparing);
        let fixed = parse(&[]).unwrap();
        let expected = [c"/work", c"/data", c"/fumehood/preload"].map(CString::from);
        assert_eq!(places(&fixed), expected);
        let seconds = |importing, preparing| {
            (
                Duration::from_secs(importing),
                Duration::from_secs(preparing),
            )
        };
        assert_eq!(times(&fixed), seconds(60, 7200));
        let line =
            "--dataset /d --workspace /w --preload /p --importing-seconds 1 --preparing-seconds 2";
        let other = parse(&line.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(places(&other), [c"/w", c"/d", c"/p"].map(CString::from));
        assert_eq!(times(&other), seconds(1, 2));
    }

    #[test]
    fn unknown_or_unfinished_arguments_are_refused() {
        assert!(matches!(parse(&["--verbose"]), Err(Fatal::Arguments(_))));
        assert!(matches!(parse(&["--workspace"]), Err(Fatal::Arguments(_))));
        let soon = parse(&["--importing-seconds", "soon"]);
        assert!(matches!(soon, Err(Fatal::Arguments(_))));
    }
}
