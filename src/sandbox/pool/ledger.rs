//! What the pool knows of each template, and what it should do next: no clock, no I/O.
//!
//! Use fades by half in [`HALF_LIFE`], so that what is asked for now crowds out what was asked for
//! an hour ago. The template that is used where a request asks for nothing never fades altogether:
//! it is what the next unknown client will want.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::share::{Claim, quotient, shares};
use crate::sandbox::template::Template;

/// In which the weight of a use halves.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// The weight that the usual template has without any use.
const USUAL_WEIGHT: f64 = 0.1;

/// A template with less weight and no sandbox is forgotten.
const FORGOTTEN_WEIGHT: f64 = 0.01;

/// How much more one template has to gain from a place than another loses with it: two that are
/// used alike shall not take it from each other in turn.
const WORTH_A_CHANGE: f64 = 1.25;

/// Templates known at most: more are distinct than can be served warm.
const MAX_TEMPLATES: usize = 256;

/// Memory that a waiting sandbox is assumed to take until one was seen, in bytes.
const ASSUMED_BYTES: u64 = 192 << 20;

/// Pauses after a sandbox could not be made: the first, and the longest.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The next thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Make a sandbox of this template.
    Make(Template),
    /// Give up a waiting one of this template, whose place another needs.
    GiveUp(Template),
    /// Nothing, before this moment.
    Nothing(Option<Instant>),
}

/// How large the pool may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Waiting sandboxes, those being made included.
    pub(super) sandboxes: usize,
    /// Memory that they take, in bytes.
    pub(super) memory_bytes: u64,
}

/// A template, what is there of it, and what it should have.
#[derive(Debug)]
struct Row<'a> {
    template: &'a Template,
    entry: &'a Entry,
    share: usize,
    weight: f64,
}

impl Row<'_> {
    fn lacks(&self) -> bool {
        self.entry.there() < self.share
    }

    /// What one more is worth to it.
    fn gain(&self) -> f64 {
        self.worth(self.entry.there())
    }

    /// What the one after so many is worth; nothing is worth more than what is needed for certain.
    fn worth(&self, there: usize) -> f64 {
        if there < self.entry.expected {
            f64::INFINITY
        } else {
            quotient(self.weight, there)
        }
    }

    /// What it would lose with one less, if it has one too many that waits.
    fn loss(&self) -> Option<f64> {
        let has_surplus = self.entry.waiting > 0 && self.entry.there() > self.share;
        has_surplus.then(|| self.worth(self.entry.there() - 1))
    }
}

/// The one with a surplus that loses least with it, if `gain` is worth that.
fn cheapest<'a>(rows: &'a [Row<'a>], gain: f64) -> Option<&'a Row<'a>> {
    let surplus = rows.iter().filter_map(|row| Some((row.loss()?, row)));
    let (loss, row) = surplus.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (gain > loss * WORTH_A_CHANGE).then_some(row)
}

/// The pool's books.
#[derive(Debug)]
pub(super) struct Ledger {
    size: Size,
    entries: BTreeMap<Template, Entry>,
    usual: Option<Template>,
}

#[derive(Debug)]
struct Entry {
    weight: f64,
    weighed_at: Instant,
    /// Runs that are next in turn.
    expected: usize,
    bytes: u64,
    waiting: usize,
    making: usize,
    failures: u32,
    not_before: Instant,
}

impl Entry {
    fn new(now: Instant) -> Self {
        Self {
            weight: 0.0,
            weighed_at: now,
            expected: 0,
            bytes: ASSUMED_BYTES,
            waiting: 0,
            making: 0,
            failures: 0,
            not_before: now,
        }
    }

    fn weight_at(&self, now: Instant) -> f64 {
        let half_lives =
            now.saturating_duration_since(self.weighed_at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.weight * 0.5_f64.powf(half_lives)
    }

    fn there(&self) -> usize {
        self.waiting + self.making
    }
}

impl Ledger {
    pub(super) fn new(size: Size) -> Self {
        Self {
            size,
            entries: BTreeMap::new(),
            usual: None,
        }
    }

    /// Names the template that is used where a request asks for nothing.
    pub(super) fn set_usual(&mut self, template: Template, now: Instant) {
        self.entries
            .entry(template.clone())
            .or_insert_with(|| Entry::new(now));
        self.usual = Some(template);
    }

    /// A sandbox of this template is asked for.
    pub(super) fn used(&mut self, template: &Template, now: Instant) {
        let entry = self.entry(template, now);
        entry.weight = entry.weight_at(now) + 1.0;
        entry.weighed_at = now;
    }

    /// One of each of these will be asked for soon; replaces what was expected before.
    pub(super) fn expect(&mut self, templates: &[Template], now: Instant) {
        for entry in self.entries.values_mut() {
            entry.expected = 0;
        }
        for template in templates {
            self.entry(template, now).expected += 1;
        }
    }

    fn entry(&mut self, template: &Template, now: Instant) -> &mut Entry {
        if self.entries.len() >= MAX_TEMPLATES && !self.entries.contains_key(template) {
            self.forget_lightest(now);
        }
        self.entries
            .entry(template.clone())
            .or_insert_with(|| Entry::new(now))
    }

    /// One is being made.
    pub(super) fn making(&mut self, template: &Template) {
        if let Some(entry) = self.entries.get_mut(template) {
            entry.making += 1;
        }
    }

    /// One that was being made waits now, and takes so much memory.
    pub(super) fn made(&mut self, template: &Template, bytes: Option<u64>) {
        if let Some(entry) = self.entries.get_mut(template) {
            entry.making = entry.making.saturating_sub(1);
            entry.waiting += 1;
            entry.failures = 0;
            // The last one's: the first after a boot also pays for what the kernel then keeps.
            entry.bytes = bytes.unwrap_or(entry.bytes);
        }
    }

    /// One could not be made.
    pub(super) fn failed(&mut self, template: &Template, now: Instant) {
        let [first, longest] = BACK_OFF;
        if let Some(entry) = self.entries.get_mut(template) {
            entry.making = entry.making.saturating_sub(1);
            let pause = first.saturating_mul(2_u32.saturating_pow(entry.failures));
            entry.failures = entry.failures.saturating_add(1);
            entry.not_before = now + pause.min(longest);
        }
    }

    /// One that waited was taken, given up or lost.
    pub(super) fn gone(&mut self, template: &Template) {
        if let Some(entry) = self.entries.get_mut(template) {
            entry.waiting = entry.waiting.saturating_sub(1);
        }
    }

    /// All that waited are given up.
    pub(super) fn all_gone(&mut self) {
        for entry in self.entries.values_mut() {
            entry.waiting = 0;
        }
    }

    /// Whether this template's sandboxes could not be made lately.
    pub(super) fn is_failing(&self, template: &Template) -> bool {
        self.entries
            .get(template)
            .is_some_and(|entry| entry.failures > 0)
    }

    /// What to do next.
    pub(super) fn next_step(&mut self, now: Instant) -> Step {
        let usual = self.usual.as_ref();
        self.entries.retain(|template, entry| {
            entry.there() > 0
                || entry.expected > 0
                || usual == Some(template)
                || entry.weight_at(now) >= FORGOTTEN_WEIGHT
        });
        let claims: Vec<Claim> = self
            .entries
            .iter()
            .map(|(template, entry)| Claim {
                weight: self.weight(template, entry, now),
                certain: entry.expected,
                bytes: entry.bytes,
            })
            .collect();
        let shares = shares(self.size.sandboxes, self.size.memory_bytes, &claims);
        let rows: Vec<Row<'_>> = self
            .entries
            .iter()
            .zip(shares)
            .map(|((template, entry), share)| Row {
                template,
                entry,
                share,
                weight: self.weight(template, entry, now),
            })
            .collect();

        if self.bytes() > self.size.memory_bytes
            && let Some(surplus) = cheapest(&rows, f64::INFINITY)
        {
            return Step::GiveUp(surplus.template.clone());
        }
        let mut lacking: Vec<&Row<'_>> = rows.iter().filter(|row| row.lacks()).collect();
        lacking.sort_by(|one, other| other.gain().total_cmp(&one.gain()));
        for row in lacking.iter().filter(|row| row.entry.not_before <= now) {
            if self.has_room_for(row.entry) {
                return Step::Make(row.template.clone());
            }
            if let Some(surplus) = cheapest(&rows, row.gain()) {
                return Step::GiveUp(surplus.template.clone());
            }
        }
        // Those that are being made will be there in a moment, and tell.
        let later = lacking.iter().map(|row| row.entry.not_before);
        Step::Nothing(later.filter(|at| *at > now).min())
    }

    /// Forgets all use of the templates that nobody can ask for any more; theirs give way.
    pub(super) fn outdate(&mut self, is_outdated: impl Fn(&Template) -> bool) {
        for (template, entry) in &mut self.entries {
            if is_outdated(template) {
                entry.weight = 0.0;
                entry.expected = 0;
            }
        }
    }

    fn weight(&self, template: &Template, entry: &Entry, now: Instant) -> f64 {
        let base = if self.usual.as_ref() == Some(template) {
            USUAL_WEIGHT
        } else {
            0.0
        };
        base + entry.weight_at(now)
    }

    fn has_room_for(&self, one: &Entry) -> bool {
        let there: usize = self.entries.values().map(Entry::there).sum();
        there < self.size.sandboxes
            && self.bytes().saturating_add(one.bytes) <= self.size.memory_bytes
    }

    fn bytes(&self) -> u64 {
        let bytes = |entry: &Entry| entry.bytes.saturating_mul(entry.there() as u64);
        self.entries.values().map(bytes).sum()
    }

    fn forget_lightest(&mut self, now: Instant) {
        let usual = self.usual.as_ref();
        let lightest = self
            .entries
            .iter()
            .filter(|(template, entry)| {
                entry.there() == 0 && entry.expected == 0 && usual != Some(*template)
            })
            .min_by(|(_, one), (_, other)| one.weight_at(now).total_cmp(&other.weight_at(now)))
            .map(|(template, _)| template.clone());
        if let Some(template) = lightest {
            self.entries.remove(&template);
        }
    }
}

#[cfg(test)]
mod tests;
