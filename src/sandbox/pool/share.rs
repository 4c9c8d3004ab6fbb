//! Who gets how many of the waiting sandboxes: a pure function.
//!
//! The method is Sainte-Laguë's, which parliaments use for seats: each further sandbox goes to the
//! template with the highest weight in proportion to what it has already. It favours neither the
//! large nor the small, and one more sandbox in all never takes one away from anybody. What is needed
//! for certain comes first: it is not a guess.

/// A template that may have waiting sandboxes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Claim {
    /// How much it is used, in any unit; not negative.
    pub(super) weight: f64,
    /// Needed for certain, and soon.
    pub(super) certain: usize,
    /// Memory that one waiting sandbox of it takes, in bytes.
    pub(super) bytes: u64,
}

/// How many each gets, `size` in all at most, and `memory_bytes` at most. A template that does not
/// fit any more leaves its turn to the others.
pub(super) fn shares(size: usize, memory_bytes: u64, claims: &[Claim]) -> Vec<usize> {
    let mut shares = vec![0_usize; claims.len()];
    let mut memory_left = memory_bytes;
    let mut places_left = size;
    let most = claims.iter().map(|claim| claim.certain).max().unwrap_or(0);
    for round in 0..most.min(size) {
        let needing = claims.iter().enumerate();
        for (index, claim) in needing.filter(|(_, claim)| claim.certain > round) {
            if places_left > 0 && claim.bytes <= memory_left {
                shares[index] += 1;
                places_left -= 1;
                memory_left -= claim.bytes;
            }
        }
    }
    for _ in 0..places_left {
        let fitting = claims
            .iter()
            .enumerate()
            .filter(|(_, claim)| claim.bytes <= memory_left && claim.weight > 0.0);
        let next = fitting.max_by(|(a, one), (b, other)| {
            let one = quotient(one.weight, shares[*a]);
            one.total_cmp(&quotient(other.weight, shares[*b]))
                // Of equals the first: what is asked for twice is answered alike.
                .then(b.cmp(a))
        });
        let Some((index, claim)) = next else { break };
        shares[index] += 1;
        memory_left -= claim.bytes;
    }
    shares
}

/// What a further sandbox would be worth to a template that has `share`.
#[expect(clippy::cast_precision_loss, reason = "a share is a small number")]
pub(super) fn quotient(weight: f64, share: usize) -> f64 {
    weight / (2 * share + 1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_LIMIT: u64 = u64::MAX;

    fn claims(weights: &[f64]) -> Vec<Claim> {
        weights
            .iter()
            .map(|&weight| Claim {
                weight,
                certain: 0,
                bytes: 1,
            })
            .collect()
    }

    #[test]
    fn one_template_gets_everything_and_none_gets_nothing() {
        assert_eq!(shares(4, NO_LIMIT, &claims(&[0.1])), [4]);
        assert_eq!(shares(4, NO_LIMIT, &[]), [0_usize; 0]);
        assert_eq!(shares(0, NO_LIMIT, &claims(&[1.0])), [0]);
        assert_eq!(shares(4, NO_LIMIT, &claims(&[0.0])), [0]);
    }

    #[test]
    fn shares_follow_use() {
        assert_eq!(shares(4, NO_LIMIT, &claims(&[3.0, 1.0])), [3, 1]);
        assert_eq!(shares(4, NO_LIMIT, &claims(&[1.0, 1.0])), [2, 2]);
        assert_eq!(shares(4, NO_LIMIT, &claims(&[100.0, 1.0])), [4, 0]);
    }

    #[test]
    fn what_does_not_fit_into_memory_leaves_its_turn_to_others() {
        let large = Claim {
            weight: 9.0,
            certain: 0,
            bytes: 60,
        };
        let small = Claim {
            weight: 1.0,
            certain: 0,
            bytes: 20,
        };
        assert_eq!(shares(4, 100, &[large, small]), [1, 2]);
        assert_eq!(shares(4, 50, &[large, small]), [0, 2]);
    }

    #[test]
    fn what_is_certain_comes_first_and_in_turns() {
        let claim = |weight, certain| Claim {
            weight,
            certain,
            bytes: 10,
        };
        let claims = [claim(9.0, 0), claim(0.0, 1), claim(1.0, 2)];
        let of = |size| shares(size, NO_LIMIT, &claims);
        assert_eq!(of(1), [0, 1, 0]);
        assert_eq!(of(2), [0, 1, 1]);
        assert_eq!(of(3), [0, 1, 2]);
        assert_eq!(of(5), [2, 1, 2]);
        assert_eq!(shares(5, 20, &claims), [0, 1, 1]);
    }

    proptest! {
        #[test]
        fn neither_size_nor_memory_is_ever_exceeded(
            size in 0_usize..20,
            memory in 0_u64..500,
            list in prop::collection::vec((0.0_f64..100.0, 0_usize..5, 0_u64..100), 0..8),
        ) {
            let claim = |&(weight, certain, bytes)| Claim { weight, certain, bytes };
            let claims: Vec<_> = list.iter().map(claim).collect();
            let shares = shares(size, memory, &claims);
            prop_assert!(shares.iter().sum::<usize>() <= size);
            let bytes: u64 = shares.iter().zip(&claims).map(|(&n, c)| n as u64 * c.bytes).sum();
            prop_assert!(bytes <= memory);
        }

        #[test]
        fn a_larger_pool_takes_nothing_away_and_more_use_is_no_disadvantage(
            size in 0_usize..20,
            weights in prop::collection::vec(0.01_f64..100.0, 1..8),
        ) {
            let before = shares(size, NO_LIMIT, &claims(&weights));
            let larger = shares(size + 1, NO_LIMIT, &claims(&weights));
            prop_assert!(before.iter().zip(&larger).all(|(a, b)| a <= b));
            let mut more = weights.clone();
            more[0] *= 2.0;
            prop_assert!(shares(size, NO_LIMIT, &claims(&more))[0] >= before[0]);
        }
    }
}
