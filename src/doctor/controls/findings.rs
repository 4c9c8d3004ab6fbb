//! Short ways to a finding, for the tables. Pure.

use super::{Finding, Outcome};
use crate::doctor::facts::Answers;

/// The remedy where the engine did other than it was asked to.
pub(super) const SETTINGS: &str =
    "The engine did not do what it was asked for: upgrade it, and report it";

/// How many things that are not as expected are named.
const NAMED: usize = 3;

/// The longest text of a finding, in characters.
const LONGEST: usize = 400;

/// Text that was seen, without what could change a terminal, a log or the order of words: it may
/// come from a sandbox, and whatever is honest is plain ASCII.
pub(crate) fn harmless(text: &str) -> String {
    let is_kept = |c: char| c.is_ascii_graphic() || c == ' ';
    let mut shown: String = text
        .chars()
        .take(LONGEST)
        .map(|c| if is_kept(c) { c } else { '\u{fffd}' })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push_str("...");
    }
    shown
}

fn finding(outcome: Outcome, seen: impl Into<String>) -> Finding {
    Finding {
        outcome,
        seen: seen.into(),
    }
}

pub(super) fn holds(seen: impl Into<String>) -> Finding {
    finding(Outcome::Holds, seen)
}

pub(super) fn broken(seen: impl Into<String>) -> Finding {
    finding(Outcome::Broken, seen)
}

pub(super) fn absent(seen: impl Into<String>) -> Finding {
    finding(Outcome::Absent, seen)
}

pub(super) fn differs(seen: impl Into<String>) -> Finding {
    finding(Outcome::Differs, seen)
}

pub(super) fn decide(is_good: bool, seen: impl Into<String>) -> Finding {
    finding(
        if is_good {
            Outcome::Holds
        } else {
            Outcome::Broken
        },
        seen,
    )
}

/// Several conditions, each with what is to be said if it does not hold; `good` if all do.
pub(super) fn all(conditions: &[(bool, String)], good: impl Into<String>) -> Finding {
    let failed: Vec<&str> = conditions
        .iter()
        .filter(|(holds, _)| !holds)
        .map(|(_, words)| words.as_str())
        .collect();
    if failed.is_empty() {
        holds(good)
    } else {
        broken(some(&failed))
    }
}

/// The answers that are not accepted, as `name: answer`.
pub(super) fn others(answers: &Answers, is_accepted: impl Fn(&str, &str) -> bool) -> Vec<String> {
    answers
        .iter()
        .filter(|(name, answer)| !is_accepted(name, answer))
        .map(|(name, answer)| format!("{name}: {answer}"))
        .collect()
}

/// Every answer has to be accepted, and there has to be one.
pub(super) fn answers(answers: &Answers, accepted: &[&str]) -> Finding {
    let unaccepted = others(answers, |_, answer| accepted.contains(&answer));
    if answers.is_empty() {
        broken("nothing was tried")
    } else if unaccepted.is_empty() {
        holds(summary(answers))
    } else {
        broken(some(&unaccepted))
    }
}

/// Which answers there were.
pub(super) fn summary(answers: &Answers) -> String {
    let mut kinds: Vec<&str> = answers.values().map(String::as_str).collect();
    kinds.sort_unstable();
    kinds.dedup();
    format!("{} ({} tried)", some(&kinds), answers.len())
}

/// The first few of a list.
pub(super) fn some<T: AsRef<str>>(list: &[T]) -> String {
    let shown: Vec<&str> = list.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = list.len().saturating_sub(NAMED);
    let rest = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_says_speaks_to_no_terminal() {
        for (said, shown) in [
            ("EPERM, ok", "EPERM, ok"),
            ("\x1b[2J\x07", "\u{fffd}[2J\u{fffd}"),
            ("a\nb\r\tc", "a\u{fffd}b\u{fffd}\u{fffd}c"),
            // One byte that begins a sequence on some terminals, and a reversed order of words.
            ("\u{9b}2J", "\u{fffd}2J"),
            ("\u{202e}ssap", "\u{fffd}ssap"),
        ] {
            assert_eq!(harmless(said), shown);
        }
        assert_eq!(harmless(&"x".repeat(100_000)).len(), LONGEST + 3);
    }
}
