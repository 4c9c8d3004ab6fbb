//! What a pool does with its places as use comes and goes.

use super::*;
use crate::config::Execution;
use crate::sandbox::template::{DatasetMount, Image};

const MIB: u64 = 1 << 20;

fn template(name: &str) -> Template {
    Template {
        image: Image {
            reference: name.to_owned(),
            id: format!("sha256:{name}"),
            environment_names: Vec::new(),
        },
        runtime: None,
        dataset: DatasetMount::None,
        limits: Execution::default().default_limits().of_sandbox(),
        interpreter: true,
    }
}

fn ledger(sandboxes: usize) -> Ledger {
    Ledger::new(Size {
        sandboxes,
        memory_bytes: 1 << 40,
    })
}

/// Does what the ledger says until it says nothing; tells what was done.
fn settle(ledger: &mut Ledger, now: Instant) -> Vec<String> {
    let mut done = Vec::new();
    loop {
        match ledger.next_step(now) {
            Step::Make(template) => {
                ledger.making(&template);
                ledger.made(&template, None);
                done.push(format!("+{}", template.image.reference));
            }
            Step::GiveUp(template) => {
                ledger.gone(&template);
                done.push(format!("-{}", template.image.reference));
            }
            Step::Nothing(_) => return done,
        }
        assert!(done.len() < 100, "it never settles: {done:?}");
    }
}

#[tokio::test]
async fn the_usual_template_fills_a_pool_that_nobody_has_used() {
    let (mut ledger, now) = (ledger(3), Instant::now());
    ledger.set_usual(template("usual"), now);
    assert_eq!(settle(&mut ledger, now), ["+usual", "+usual", "+usual"]);
}

#[tokio::test]
async fn what_is_used_crowds_out_what_is_not_one_at_a_time() {
    let (mut ledger, now) = (ledger(3), Instant::now());
    ledger.set_usual(template("usual"), now);
    settle(&mut ledger, now);
    for _ in 0..3 {
        ledger.used(&template("hot"), now);
    }
    let expected = ["-usual", "+hot", "-usual", "+hot", "-usual", "+hot"];
    assert_eq!(settle(&mut ledger, now), expected);
}

#[tokio::test]
async fn what_is_used_no_more_gives_way() {
    let (mut ledger, now) = (ledger(2), Instant::now());
    for name in ["old", "old", "new"] {
        ledger.used(&template(name), now);
    }
    assert_eq!(settle(&mut ledger, now), ["+old", "+new"]);
    let later = now + HALF_LIFE * 4;
    for _ in 0..2 {
        ledger.used(&template("new"), later);
    }
    assert_eq!(settle(&mut ledger, later), ["-old", "+new"]);
    let much_later = later + HALF_LIFE * 20;
    ledger.gone(&template("new"));
    ledger.gone(&template("new"));
    assert_eq!(ledger.next_step(much_later), Step::Nothing(None));
    assert!(ledger.entries.is_empty(), "all forgotten");
}

#[tokio::test]
async fn two_that_are_used_alike_do_not_take_a_place_from_each_other_in_turn() {
    let (mut ledger, now) = (ledger(3), Instant::now());
    for name in ["a", "b", "a", "b", "a"] {
        ledger.used(&template(name), now);
    }
    assert_eq!(settle(&mut ledger, now).len(), 3);
    for name in ["b", "a", "b", "a", "b", "a"] {
        ledger.used(&template(name), now);
        assert_eq!(settle(&mut ledger, now), [""; 0]);
    }
}

#[tokio::test]
async fn a_sandbox_that_was_taken_is_replaced() {
    let (mut ledger, now) = (ledger(2), Instant::now());
    ledger.set_usual(template("usual"), now);
    settle(&mut ledger, now);
    ledger.used(&template("usual"), now);
    ledger.gone(&template("usual"));
    assert_eq!(settle(&mut ledger, now), ["+usual"]);
}

#[tokio::test]
async fn memory_bounds_the_pool_and_is_learnt() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Size {
        sandboxes: 10,
        memory_bytes: 400 * MIB,
    });
    ledger.set_usual(template("usual"), now);
    assert_eq!(ledger.next_step(now), Step::Make(template("usual")));
    ledger.making(&template("usual"));
    ledger.made(&template("usual"), Some(100 * MIB));
    assert_eq!(settle(&mut ledger, now).len(), 3, "four of 100 MiB in 400");
}

#[tokio::test]
async fn what_turns_out_to_take_too_much_is_given_up_again() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Size {
        sandboxes: 2,
        memory_bytes: 1000 * MIB,
    });
    ledger.set_usual(template("usual"), now);
    for _ in 0..2 {
        assert_eq!(ledger.next_step(now), Step::Make(template("usual")));
        ledger.making(&template("usual"));
    }
    for _ in 0..2 {
        ledger.made(&template("usual"), Some(600 * MIB));
    }
    assert_eq!(settle(&mut ledger, now), ["-usual"]);
}

#[tokio::test]
async fn a_template_that_does_not_fit_does_not_keep_another_from_being_made() {
    let now = Instant::now();
    let mut ledger = Ledger::new(Size {
        sandboxes: 3,
        memory_bytes: 500 * MIB,
    });
    // The large one comes first by name and by use.
    for name in ["a large", "a large", "small"] {
        ledger.used(&template(name), now);
    }
    for (name, mib) in [("a large", 400), ("small", 50)] {
        ledger.making(&template(name));
        ledger.made(&template(name), Some(mib * MIB));
    }
    assert_eq!(settle(&mut ledger, now), ["+small"]);
}

#[tokio::test]
async fn what_nobody_can_ask_for_any_more_gives_way() {
    let (mut ledger, now) = (ledger(2), Instant::now());
    ledger.set_usual(template("old"), now);
    for _ in 0..9 {
        ledger.used(&template("old"), now);
    }
    settle(&mut ledger, now);
    ledger.outdate(|template| template.image.reference == "old");
    ledger.set_usual(template("new"), now);
    assert_eq!(settle(&mut ledger, now), ["-old", "+new", "-old", "+new"]);
}

#[tokio::test]
async fn one_that_is_being_made_counts_as_there() {
    let (mut ledger, now) = (ledger(1), Instant::now());
    ledger.set_usual(template("usual"), now);
    ledger.making(&template("usual"));
    assert_eq!(ledger.next_step(now), Step::Nothing(None));
}

#[tokio::test]
async fn what_cannot_be_made_is_tried_again_after_longer_and_longer_pauses() {
    let (mut ledger, start) = (ledger(1), Instant::now());
    let usual = template("usual");
    ledger.set_usual(usual.clone(), start);
    let mut now = start;
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(ledger.next_step(now), Step::Make(usual.clone()));
        ledger.making(&usual);
        ledger.failed(&usual, now);
        let again = now + Duration::from_secs(seconds);
        assert_eq!(ledger.next_step(now), Step::Nothing(Some(again)));
        now = again;
    }
    ledger.making(&usual);
    ledger.made(&usual, None);
    assert!(!ledger.is_failing(&usual));
}

#[tokio::test]
async fn the_number_of_known_templates_is_bounded() {
    let (mut ledger, now) = (ledger(1), Instant::now());
    ledger.set_usual(template("usual"), now);
    for number in 0..MAX_TEMPLATES * 2 {
        ledger.used(&template(&number.to_string()), now);
    }
    assert_eq!(ledger.entries.len(), MAX_TEMPLATES);
    assert!(ledger.entries.contains_key(&template("usual")));
}

#[tokio::test]
async fn what_is_expected_comes_before_what_was_used_until_it_is_not_expected_any_more() {
    let (mut ledger, now) = (ledger(2), Instant::now());
    ledger.used(&template("often"), now);
    ledger.used(&template("often"), now);
    assert_eq!(settle(&mut ledger, now), ["+often", "+often"]);
    ledger.expect(&[template("next")], now);
    assert_eq!(settle(&mut ledger, now), ["-often", "+next"]);
    ledger.expect(&[template("next"), template("next")], now);
    assert_eq!(settle(&mut ledger, now), ["-often", "+next"]);
    ledger.expect(&[], now);
    let back = ["-next", "+often", "-next", "+often"];
    assert_eq!(settle(&mut ledger, now), back);
}
