//! Who has which units of the FIB's memory.

use std::collections::BTreeMap;

use forwarder_common::fib::{LINE_UNITS, NODE_UNITS_MAX};

/// A run of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) first: u32,
    pub(super) units: u32,
}

/// Unlinked blocks that wait for a grace period at most: one serves them all.
pub(super) const QUARANTINE_MAX: usize = 20_000;

/// Units, a quarter of a megabyte: far more than the longest way from a root down, and room for
/// thousands of addresses of this host.
const RESERVE_MAX: u32 = 1 << 15;

/// Of all units, the share that may be gaps between nodes.
const GAPS_SHARE: u32 = 32;

#[derive(Debug)]
pub(super) struct Pool {
    first: u32,
    end: u32,
    /// Never used before, or all that is left after a merge.
    fresh: Vec<Block>,
    /// By their units.
    free: Vec<Vec<u32>>,
    /// Unlinked, but a packet on its way may stand in them.
    quarantine: Vec<Block>,
    used: u64,
}

impl Pool {
    /// Units from `first` up to `end`, which is not one of them.
    pub(super) fn new(first: u32, end: u32) -> Self {
        Self {
            first,
            end,
            fresh: vec![Block { first, units: end - first }],
            free: vec![Vec::new(); NODE_UNITS_MAX as usize + 1],
            quarantine: Vec::new(),
            used: 0,
        }
    }

    /// What is kept for this host's own addresses, and for changes that only take away: they too
    /// write new nodes before they give up old ones.
    pub(super) fn reserve(&self) -> u32 {
        RESERVE_MAX.min((self.end - self.first) / 8)
    }

    /// Units in nodes, and in those that wait for a grace period.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// `None` where no free run of units is as long, or fewer than `reserve` would be left.
    pub(super) fn take(&mut self, units: u32, reserve: u32) -> Option<Block> {
        let left = u64::from(self.end - self.first) - self.used;
        if left < u64::from(units) + u64::from(reserve) {
            return None;
        }
        let block = self.take_once(units).or_else(|| {
            self.merge();
            self.take_once(units)
        })?;
        self.used += u64::from(units);
        Some(block)
    }

    /// Takes back what no reader has ever seen.
    pub(super) fn give_back(&mut self, block: Block) {
        self.used -= u64::from(block.units);
        self.keep(block);
    }

    /// Takes back what nothing leads to any more.
    pub(super) fn quarantine(&mut self, block: Block) {
        self.quarantine.push(block);
    }

    pub(super) fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// Units up to the last that was ever taken.
    pub(super) fn reached(&self) -> u32 {
        self.fresh.first().map_or(self.end, |fresh| fresh.first) - self.first
    }

    /// A grace period is over.
    pub(super) fn release(&mut self) {
        for block in std::mem::take(&mut self.quarantine) {
            self.give_back(block);
        }
        if self.used == 0 {
            let (first, end) = (self.first, self.end);
            self.free.iter_mut().for_each(Vec::clear);
            self.fresh = vec![Block { first, units: end - first }];
        }
    }

    fn take_once(&mut self, units: u32) -> Option<Block> {
        if let Some(first) = self.free[units as usize].pop() {
            return Some(Block { first, units });
        }
        let gaps_left = self.gaps_left();
        while let Some(fresh) = self.fresh.last_mut() {
            let gap = Some(gap_before(fresh.first, units)).filter(|gap| *gap <= gaps_left);
            let gap = gap.unwrap_or(0);
            if fresh.units >= gap + units {
                let gap = Block { first: fresh.first, units: gap };
                let block = Block { first: gap.first + gap.units, units };
                *fresh =
                    Block { first: block.first + units, units: fresh.units - gap.units - units };
                // Smaller nodes will lie there.
                self.keep(gap);
                return Some(block);
            }
            // Too short for this one: it may do for another.
            let rest = self.fresh.pop()?;
            self.keep(rest);
        }
        let larger =
            (units as usize + 1..self.free.len()).find(|size| !self.free[*size].is_empty());
        let size = larger?;
        let first = self.free[size].pop()?;
        self.keep(Block { first: first + units, units: u32::try_from(size).ok()? - units });
        Some(Block { first, units })
    }

    /// Units that may yet be left out to keep nodes in their cache lines: all such gaps together are
    /// far less than the reserve, which is for nodes that do not fit into them.
    fn gaps_left(&self) -> u32 {
        let fresh: u32 = self.fresh.iter().map(|fresh| fresh.units).sum();
        let size = self.end - self.first;
        let holes = u64::from(size - fresh).saturating_sub(self.used);
        (size / GAPS_SHARE).saturating_sub(u32::try_from(holes).unwrap_or(u32::MAX))
    }

    fn keep(&mut self, block: Block) {
        if block.units > 0 {
            self.free[block.units as usize].push(block.first);
        }
    }

    /// Joins free neighbours.
    fn merge(&mut self) {
        let mut runs = BTreeMap::new();
        for (units, blocks) in (0..).zip(&mut self.free) {
            runs.extend(blocks.drain(..).map(|first| (first, units)));
        }
        runs.extend(self.fresh.drain(..).map(|block| (block.first, block.units)));
        let mut merged: Vec<Block> = Vec::new();
        for (first, units) in runs {
            match merged.last_mut() {
                Some(last) if last.first + last.units == first => last.units += units,
                _ => merged.push(Block { first, units }),
            }
        }
        for block in merged {
            if block.units > NODE_UNITS_MAX {
                self.fresh.push(block);
            } else {
                self.keep(block);
            }
        }
    }
}

/// Units to leave out, so that a block lies in no more cache lines than it must: what a lookup waits
/// for is memory.
fn gap_before(first: u32, units: u32) -> u32 {
    let at = first % LINE_UNITS;
    let lines = |units: u32| units.div_ceil(LINE_UNITS);
    if lines(at + units) > lines(units) { LINE_UNITS - at } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_used_again_only_after_a_grace_period() {
        let mut pool = Pool::new(8, 32);
        let blocks: Vec<Block> = (0..3).map(|_| pool.take(8, 0).unwrap()).collect();
        assert_eq!((blocks[0].first, pool.used()), (8, 24));
        assert_eq!(pool.take(1, 0), None);
        pool.quarantine(blocks[1]);
        assert_eq!((pool.take(8, 0), pool.quarantined()), (None, 1));
        pool.release();
        assert_eq!(pool.take(8, 0), Some(blocks[1]));
    }

    #[test]
    fn the_reserve_is_left() {
        let mut pool = Pool::new(0, 40);
        assert_eq!(pool.reserve(), 5);
        assert_eq!(pool.take(36, 5), None);
        assert!(pool.take(35, 5).is_some());
        assert!(pool.take(5, 0).is_some());
    }

    #[test]
    fn larger_blocks_are_split_and_neighbours_joined_again() {
        let mut pool = Pool::new(0, 20);
        let large = pool.take(20, 0).unwrap();
        pool.give_back(large);
        let blocks: Vec<Block> = (0..4).map(|_| pool.take(5, 0).unwrap()).collect();
        assert_eq!(pool.take(5, 0), None);
        for block in blocks {
            pool.give_back(block);
        }
        assert_eq!(pool.take(20, 0), Some(large));
    }

    #[test]
    fn what_fits_into_a_cache_line_lies_in_one_and_gaps_are_used() {
        let mut pool = Pool::new(2, 1000);
        let mut first = |units| pool.take(units, 0).unwrap().first;
        // The second would begin in the first line and end in the next; the third takes the gap.
        assert_eq!((first(4), first(5), first(2), first(9)), (2, 8, 6, 13));
        assert_eq!((first(7), first(3), first(2)), (24, 32, 22));
        assert_eq!(pool.reached(), 33);
    }
}
