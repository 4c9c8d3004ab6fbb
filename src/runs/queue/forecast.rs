//! The turns to come, if nothing changes: what taking runs one after the other would give.

use crate::ids::TenantId;

/// A tenant while the future is thought through.
#[derive(Debug)]
pub(super) struct Forecast<'q> {
    pub(super) tenant: &'q TenantId,
    pub(super) pass: u64,
    pub(super) turn: i64,
    pub(super) stride: u64,
    /// How many runs it has left.
    pub(super) left: usize,
}

/// Whose turn it is, one after the other, until there is nothing left.
#[derive(Debug)]
pub(super) struct Turns<'q> {
    pub(super) lines: Vec<Forecast<'q>>,
    pub(super) last_turn: i64,
}

impl<'q> Iterator for Turns<'q> {
    type Item = &'q TenantId;

    fn next(&mut self) -> Option<&'q TenantId> {
        let waiting = self.lines.iter_mut().filter(|line| line.left > 0);
        let next = waiting.min_by_key(|line| (line.pass, line.turn))?;
        self.last_turn += 1;
        next.turn = self.last_turn;
        next.pass += next.stride;
        next.left -= 1;
        Some(next.tenant)
    }
}
