//! Section G of the security bar: engine and host, once per machine. What is missing here is a
//! warning: it weakens every sandbox a little, and none of them is unfit for it.

pub mod engine;

pub mod host;

use super::findings::{absent, broken, decide, holds};
use super::{Area, Control, Finding, Mark};
use crate::doctor::facts::MachineFacts;
use crate::doctor::versions::Version;

type Judge = fn(&MachineFacts) -> Finding;

const fn control(
    (number, mark, area): (&'static str, Mark, Area),
    title: &'static str,
    expected: &'static str,
    remedy: &'static str,
    judge: Judge,
) -> Control<MachineFacts> {
    Control {
        number,
        mark,
        area,
        title,
        expected,
        remedy,
        judge,
    }
}

const fn report(
    number: &'static str,
    title: &'static str,
    expected: &'static str,
    remedy: &'static str,
    judge: Judge,
) -> Control<MachineFacts> {
    let place = (number, Mark::Reported, Area::Engine);
    control(place, title, expected, remedy, judge)
}

const fn strong(
    number: &'static str,
    title: &'static str,
    expected: &'static str,
    remedy: &'static str,
    judge: Judge,
) -> Control<MachineFacts> {
    let place = (number, Mark::Strong, Area::Engine);
    control(place, title, expected, remedy, judge)
}

const fn advice(
    number: &'static str,
    title: &'static str,
    expected: &'static str,
    remedy: &'static str,
    judge: Judge,
) -> Control<MachineFacts> {
    let place = (number, Mark::Strong, Area::Host);
    control(place, title, expected, remedy, judge)
}

fn floor(version: Option<&str>, floors: &[Version]) -> Finding {
    match version.and_then(|text| Some((text, Version::parse(text)?))) {
        Some((text, version)) => decide(version.meets(floors), text),
        None => absent("the version is not told"),
    }
}

/// An option of the engine's configuration file; what is not in it is the engine's default, which
/// is the other value.
fn option(facts: &MachineFacts, name: &str, wanted: bool) -> Finding {
    match &facts.host.engine_config {
        Some(config) => match config[name].as_bool() {
            Some(set) => decide(set == wanted, set.to_string()),
            None => broken(format!("{} by default", !wanted)),
        },
        None => absent("no daemon.json is to be read here"),
    }
}

fn offered(is_offered: bool, otherwise: &'static str) -> Finding {
    if is_offered {
        holds("yes")
    } else {
        absent(otherwise)
    }
}

fn value(text: Option<&str>, is_good: impl Fn(&str) -> bool) -> Finding {
    match text {
        Some(text) => decide(is_good(text), text),
        None => absent("this kernel does not tell"),
    }
}

fn setting(facts: &MachineFacts, name: &str, is_good: impl Fn(&str) -> bool) -> Finding {
    let text = facts.host.settings.get(name).cloned().flatten();
    value(text.as_deref(), is_good)
}

/// Whether one of the modules confines programs by what they may touch.
#[must_use]
pub fn confines(modules: &str) -> bool {
    ["apparmor", "selinux", "smack"]
        .iter()
        .any(|name| modules.split(',').any(|module| module.trim() == *name))
}
