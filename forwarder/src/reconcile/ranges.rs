//! Ranges of indexes into a map that programs read, handed out by halving and given back to be
//! joined: blocks of powers of two, each aligned to its size.

use std::collections::BTreeSet;

/// Sizes from 1 to `1 << ORDER_MAX`.
const ORDER_MAX: u32 = forwarder_common::abi::GROUP_BUCKETS_MAX.trailing_zeros();

#[derive(Debug)]
pub(super) struct Ranges {
    /// By the logarithm of their size: the starts of those that are free.
    free: [BTreeSet<u32>; ORDER_MAX as usize + 1],
    /// Unlinked (start and order), but a packet on its way may have read them before.
    quarantine: Vec<(u32, u32)>,
}

impl Ranges {
    /// Of the numbers below `end`, as many as whole blocks of the largest size hold.
    pub(super) fn new(end: u32) -> Self {
        let mut free: [BTreeSet<u32>; ORDER_MAX as usize + 1] = Default::default();
        free[ORDER_MAX as usize].extend((0..end >> ORDER_MAX).map(|block| block << ORDER_MAX));
        Self { free, quarantine: Vec::new() }
    }

    /// The first number of a range of this size, a power of two; `None` where there is no room.
    /// `grace` is called only where nothing else is left: see [`crate::ids::Ids::take`].
    pub(super) fn take(&mut self, size: u32, grace: impl FnOnce() -> bool) -> Option<u32> {
        let order = size.trailing_zeros();
        if let Some(start) = self.split(order) {
            return Some(start);
        }
        if !self.quarantine.is_empty() && grace() {
            for (start, order) in std::mem::take(&mut self.quarantine) {
                self.join(start, order);
            }
        }
        self.split(order)
    }

    /// Takes back a range that no map mentions any more.
    pub(super) fn give_back(&mut self, start: u32, size: u32) {
        self.quarantine.push((start, size.trailing_zeros()));
    }

    fn split(&mut self, order: u32) -> Option<u32> {
        let larger = (order..=ORDER_MAX).find(|it| !self.free[*it as usize].is_empty())?;
        let start = self.free[larger as usize].pop_first()?;
        for half in order..larger {
            self.free[half as usize].insert(start + (1 << half));
        }
        Some(start)
    }

    fn join(&mut self, mut start: u32, mut order: u32) {
        while order < ORDER_MAX && self.free[order as usize].remove(&(start ^ (1 << order))) {
            start &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(start);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: u32 = 4 << ORDER_MAX;

    #[test]
    fn a_range_comes_back_only_after_a_grace_period() {
        let mut ranges = Ranges::new(1 << ORDER_MAX);
        let no_grace = || panic!("asked while there was room");
        let whole = ranges.take(1 << ORDER_MAX, no_grace).unwrap();
        assert_eq!(ranges.take(1, no_grace), None, "there is nothing to wait for");
        ranges.give_back(whole, 1 << ORDER_MAX);
        assert_eq!(ranges.take(1, || false), None, "no grace period, no range");
        assert_eq!(ranges.take(64, || true), Some(0));
        assert_eq!(ranges.take(64, no_grace), Some(64));
    }

    proptest! {
        #[test]
        fn ranges_are_aligned_and_apart_and_join_again(
            orders in prop::collection::vec((0..=ORDER_MAX, any::<bool>()), 1..400)
        ) {
            let mut ranges = Ranges::new(END);
            let mut taken: BTreeSet<(u32, u32)> = BTreeSet::new();
            for (order, give_back) in orders {
                let size = 1 << order;
                if give_back {
                    if let Some((start, size)) = taken.pop_first() {
                        ranges.give_back(start, size);
                    }
                } else if let Some(start) = ranges.take(size, || true) {
                    prop_assert!(start % size == 0 && start + size <= END);
                    let apart = taken.iter().all(|(at, len)| at + len <= start || start + size <= *at);
                    prop_assert!(apart, "{start}, {size}: {taken:?}");
                    taken.insert((start, size));
                }
            }
            for (start, size) in taken {
                ranges.give_back(start, size);
            }
            for _ in 0..4 {
                prop_assert!(ranges.take(1 << ORDER_MAX, || true).is_some());
            }
        }
    }
}
