//! Which library programs are to use, of those that the image holds: a pure function.

use super::profile::Profile;
use super::task::mentions;

/// Libraries to learn with, the usual one first, each with the names that people call it.
const LEARNING: [(&str, &[&str]); 6] = [
    ("sklearn", &["sklearn", "scikit-learn", "scikit learn"]),
    ("lightgbm", &["lightgbm", "lgbm"]),
    ("xgboost", &["xgboost", "xgb"]),
    ("catboost", &["catboost"]),
    ("torch", &["torch", "pytorch"]),
    ("tensorflow", &["tensorflow", "keras"]),
];

/// The library that the instruction names, if the image holds it, else the first that it holds; `None`
/// if it holds none, or if nobody knows.
#[must_use]
pub fn choose(instruction: Option<&str>, profile: &Profile) -> Option<String> {
    let is_there = |module: &str| profile.libraries.contains_key(module);
    let held = LEARNING.iter().filter(|(module, _)| is_there(module));
    let is_named = |names: &[&str]| {
        instruction.is_some_and(|text| names.iter().any(|name| mentions(text, name)))
    };
    let named = held.clone().find(|(_, names)| is_named(names));
    let (module, _) = named.or_else(|| held.clone().next())?;
    Some((*module).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_and_there_is_used_else_the_usual_one() {
        let chosen = |instruction, held: &[&str]| {
            let mut profile = Profile::default();
            for module in held {
                profile
                    .libraries
                    .insert((*module).to_owned(), "1".to_owned());
            }
            choose(instruction, &profile)
        };
        let both = ["lightgbm", "sklearn"];
        let cases = [
            (None, &both[..], Some("sklearn")),
            (Some("use LightGBM please"), &both, Some("lightgbm")),
            (Some("use xgboost"), &both, Some("sklearn")),
            (Some("scikit-learn, not lightgbm"), &both, Some("sklearn")),
            (
                Some("a torchlight"),
                &["torch", "lightgbm"],
                Some("lightgbm"),
            ),
            (None, &["lightgbm"], Some("lightgbm")),
            (None, &["pandas"], None),
            (None, &[], None),
        ];
        for (instruction, held, expected) in cases {
            assert_eq!(
                chosen(instruction, held).as_deref(),
                expected,
                "{instruction:?} {held:?}"
            );
        }
    }
}
