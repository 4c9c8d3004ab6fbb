//! The check of a chain, receipt by receipt: each by itself, each after the one before, and all of
//! them against what the one who checks has from elsewhere. Pure; needs the memory of a few receipts,
//! however long the chain is.

use super::key::PublicKey;
use super::problem::Problem;
use super::verify::Receipt;

/// What the one who checks has from elsewhere.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The keys that are trusted; with none given each receipt is checked with the key that it
    /// names, and the key must stay the same.
    pub keys: Vec<PublicKey>,
    /// The receipt before the first one.
    pub previous: Option<Receipt>,
    /// A receipt that has to be among them.
    pub kept: Option<Receipt>,
}

/// A check that goes on.
#[derive(Debug)]
pub struct Audit {
    known: Known,
    first: Option<i64>,
    last: Option<Receipt>,
    /// The last one can be believed, or was not there to be.
    unbroken: bool,
}

impl Audit {
    /// A check against what is known.
    #[must_use]
    pub fn new(mut known: Known) -> Self {
        let last = known.previous.take();
        Self {
            known,
            first: None,
            last,
            unbroken: true,
        }
    }

    /// Checks the next receipt; gives what speaks against it.
    pub fn add(&mut self, text: &[u8]) -> Vec<Problem> {
        let receipt = match Receipt::open(text) {
            Ok(receipt) => receipt,
            Err(problem) => {
                // Whatever follows cannot be compared with what cannot be believed.
                self.unbroken = false;
                return vec![problem];
            }
        };
        let keys = &self.known.keys;
        let mut problems = Vec::new();
        if !keys.is_empty() {
            problems.extend(receipt.signed_with(keys).err());
        }
        if let Some(before) = self.last.as_ref().filter(|_| self.unbroken) {
            // With both keys trusted the one may take the other's place.
            let replaced = |problem: &Problem| matches!(problem, Problem::KeyReplaced { previous } if keys.contains(previous));
            let follows = receipt.follows(before).into_iter();
            problems.extend(follows.filter(|problem| !replaced(problem)));
        }
        if let Some(kept) = &self.known.kept
            && kept.number() == receipt.number()
            && kept.text() != receipt.text()
        {
            problems.push(Problem::Rewritten(kept.number()));
        }
        self.first.get_or_insert(receipt.number());
        self.last = Some(receipt);
        self.unbroken = true;
        problems
    }

    /// What speaks against all of them together.
    #[must_use]
    pub fn end(&self) -> Option<Problem> {
        let kept = self.known.kept.as_ref()?.number();
        let (first, last) = (self.first?, self.last.as_ref()?.number());
        if kept < first {
            return Some(Problem::BeginsLate { first, kept });
        }
        (kept > last).then_some(Problem::CutOff { last, kept })
    }

    /// The number of the first receipt that could be read.
    #[must_use]
    pub fn first(&self) -> Option<i64> {
        self.first
    }

    /// The last receipt that could be read.
    #[must_use]
    pub fn last(&self) -> Option<&Receipt> {
        self.first.and(self.last.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipt::testing::{chain_of, notary, notary_with, receipt};
    use crate::receipt::{Notary, Sealed};

    fn open(sealed: &Sealed) -> Receipt {
        Receipt::open(sealed.text.as_bytes()).unwrap()
    }

    fn audited(known: Known, chain: &[Sealed]) -> Vec<Problem> {
        let mut audit = Audit::new(known);
        let mut problems: Vec<Problem> = chain
            .iter()
            .flat_map(|sealed| audit.add(sealed.text.as_bytes()))
            .collect();
        problems.extend(audit.end());
        problems
    }

    fn kept(sealed: &Sealed) -> Known {
        Known {
            kept: Some(open(sealed)),
            ..Known::default()
        }
    }

    #[test]
    fn a_whole_chain_is_good_and_so_is_a_piece_of_it() {
        let chain = chain_of(&notary(), 5);
        let keys = vec![notary().public_key()];
        let by_key = || Known {
            keys: keys.clone(),
            ..Known::default()
        };
        assert_eq!(audited(by_key(), &chain), []);
        assert_eq!(audited(by_key(), &chain[2..4]), []);
        let after = Known {
            previous: Some(open(&chain[1])),
            ..by_key()
        };
        assert_eq!(audited(after, &chain[2..]), []);
        for sealed in &chain {
            assert_eq!(audited(kept(sealed), &chain), []);
        }
    }

    #[test]
    fn a_receipt_that_is_left_out_moved_or_put_in_twice_is_named() {
        let chain = chain_of(&notary(), 5);
        let number = |problems: &[Problem]| {
            problems.iter().find_map(|problem| {
                if let Problem::Number { number, previous } = problem {
                    return Some((*number, *previous));
                }
                None
            })
        };
        let of = |order: &[usize]| {
            let chain: Vec<Sealed> = order.iter().map(|&index| chain[index].clone()).collect();
            number(&audited(Known::default(), &chain))
        };
        assert_eq!(of(&[0, 1, 2, 3, 4]), None);
        assert_eq!(of(&[0, 1, 3, 4]), Some((4, 2)));
        assert_eq!(of(&[0, 2, 1]), Some((3, 1)));
        assert_eq!(of(&[0, 1, 1]), Some((2, 2)));
    }

    #[test]
    fn a_chain_that_was_cut_off_or_written_anew_is_told_by_a_receipt_that_was_kept() {
        let chain = chain_of(&notary(), 5);
        let cut = audited(kept(&chain[4]), &chain[..3]);
        assert_eq!(cut, [Problem::CutOff { last: 3, kept: 5 }]);
        let late = audited(kept(&chain[0]), &chain[2..]);
        assert_eq!(late, [Problem::BeginsLate { first: 3, kept: 1 }]);
        // The same key, the same places, other executions: sound in itself.
        let mut anew = chain[..2].to_vec();
        for number in 11..14 {
            let last = anew.last().map(|sealed| sealed.head.clone());
            anew.push(receipt(&notary(), number, last.as_ref()));
        }
        assert_eq!(audited(Known::default(), &anew), []);
        assert_eq!(audited(kept(&chain[1]), &anew), []);
        assert_eq!(audited(kept(&chain[3]), &anew), [Problem::Rewritten(4)]);
    }

    #[test]
    fn another_key_takes_over_only_where_both_are_trusted() {
        let (old, new) = (notary(), notary_with(8, "abcdefghijkl"));
        let mut chain = chain_of(&old, 2);
        let last = chain.last().map(|sealed| sealed.head.clone());
        chain.push(receipt(&new, 3, last.as_ref()));
        let by = |notaries: &[&Notary]| {
            let keys = notaries.iter().map(|notary| notary.public_key()).collect();
            audited(
                Known {
                    keys,
                    ..Known::default()
                },
                &chain,
            )
        };
        assert_eq!(by(&[&old, &new]), []);
        let previous = old.public_key();
        assert_eq!(by(&[]), [Problem::KeyReplaced { previous }]);
        assert!(matches!(by(&[&old])[..], [Problem::OtherKey { .. }]));
        assert_eq!(by(&[&new]).len(), 3);
    }

    #[test]
    fn nothing_is_said_of_the_place_after_a_receipt_that_cannot_be_believed() {
        let chain = chain_of(&notary(), 4);
        let mut audit = Audit::new(Known::default());
        assert_eq!(audit.add(chain[0].text.as_bytes()), []);
        assert!(matches!(audit.add(b"{}")[..], [Problem::Form(_)]));
        assert_eq!(audit.add(chain[2].text.as_bytes()), []);
        assert!(!audit.add(chain[1].text.as_bytes()).is_empty());
        assert_eq!(audit.first(), Some(1));
        assert_eq!(audit.last().map(Receipt::number), Some(2));
    }
}
