//! Writes the compact FIB, whose form [`forwarder_common::fib`] has: prefixes in, words out.
//!
//! The tries know every prefix, and where in memory its node lies. A batch of changes is staged
//! whole, then published; blocks that are not pointed to any more wait for a grace period.

mod image;
mod key;
mod pool;
pub mod reader;
mod stage;
mod trie;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release, fence};

use forwarder_common::{
    abi::{ROUTE_LOCAL, ROUTE_PUNT, RouteId},
    fib::{
        ACTIVE_AT, CHILD, FILTERED4, FILTERED6, NODE_HEADER, NODES_AT, PUNT_ALL4, PUNT_ALL6, SLACK,
        UNIT,
    },
};

use self::{
    image::leaf,
    key::{Key, Root},
    pool::{Pool, QUARANTINE_MAX},
    stage::Stage,
    trie::{Id, NONE, Trie},
};
use crate::prefix::{Family, Prefix};

/// The memory has no room for the nodes of a change. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory of the FIB is full")]
pub struct FibFull;

/// What a prefix is to lead to; `None`: it is to be gone.
pub type Change = (Prefix, Option<RouteId>);

/// Returns when every reader that was on its way has left; `false` where it cannot know.
pub type Grace<'a> = &'a mut dyn FnMut() -> bool;

/// How much of the memory is in use, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// By nodes, and by those that wait for a grace period.
    pub used: u64,
    /// Of all nodes that there may be.
    pub size: u64,
}

/// The first units are a node whose every value is a punt: where a zeroed word leads.
const RESERVED: u32 = (NODE_HEADER + 1).div_ceil(UNIT);

/// Prefixes that are taken out together where there is no room to take out all at once.
const PIECE: usize = 64;

#[derive(Debug)]
pub struct Fib<M> {
    memory: M,
    pool: Pool,
    units: u32,
    /// Which root counts: 0 or 1.
    active: u32,
    /// What stops a family: [`PUNT_ALL4`], [`FILTERED4`], …
    stops: u32,
    /// A reader may still stand in the other one.
    other_is_busy: bool,
    tries: [Trie; 2],
    stages: [Stage; 2],
}

impl<M: AsRef<[AtomicU32]>> Fib<M> {
    /// An empty FIB in memory for [`forwarder_common::fib::words`] of some units. Nobody may read it yet.
    ///
    /// # Panics
    ///
    /// If the memory is too small to hold one node.
    pub fn new(memory: M) -> Self {
        let units = memory.as_ref().len() - (NODES_AT + SLACK) as usize;
        let units = u32::try_from(units).expect("references have 31 bits") / UNIT;
        assert!(units > RESERVED, "memory for {units} units");
        let fib = Self {
            pool: Pool::new(RESERVED, units),
            memory,
            units,
            active: 0,
            stops: 0,
            other_is_busy: false,
            tries: new_tries(),
            stages: Default::default(),
        };
        let words = fib.memory.as_ref();
        let punt = NODES_AT + NODE_HEADER;
        words[punt as usize].store(ROUTE_PUNT, Relaxed);
        fib.clear_root(0);
        fib.store_active();
        fib
    }

    /// What is written for this very prefix.
    pub fn route(&self, prefix: Prefix) -> Option<RouteId> {
        self.trie(prefix.family()).get(Key::of(prefix)).map(RouteId::from)
    }

    /// What a packet to this address finds.
    pub fn lookup(&self, destination: IpAddr) -> RouteId {
        reader::lookup(self.memory.as_ref(), destination)
    }

    /// Every prefix, in no order.
    pub fn prefixes(&self) -> Vec<Prefix> {
        let mut prefixes = Vec::new();
        for trie in &self.tries {
            trie.for_each(&mut |key, _| prefixes.extend(key.prefix(trie.root.0)));
        }
        prefixes
    }

    /// Prefixes of a family.
    pub fn count(&self, family: Family) -> u64 {
        self.trie(family).len()
    }

    pub fn usage(&self) -> Usage {
        let bytes = u64::from(UNIT) * 4;
        Usage { used: self.pool.used() * bytes, size: u64::from(self.units - RESERVED) * bytes }
    }

    /// Bytes of nodes up to the last that was ever used: what readers may have touched.
    pub fn reached(&self) -> u64 {
        u64::from(self.pool.reached()) * u64::from(UNIT) * 4
    }

    /// Passes everything of a family up, or looks at its routes again.
    pub fn set_punt_all(&mut self, family: Family, is_on: bool) {
        self.stop([PUNT_ALL4, PUNT_ALL6][index(family)], is_on);
    }

    /// Likewise, for the reason that XDP would bypass what Linux does to its packets.
    pub fn set_filtered(&mut self, family: Family, is_on: bool) {
        self.stop([FILTERED4, FILTERED6][index(family)], is_on);
    }

    fn stop(&mut self, bit: u32, is_on: bool) {
        self.stops = if is_on { self.stops | bit } else { self.stops & !bit };
        self.store_active();
    }

    /// Makes all of these changes, or none. Of several of one prefix, the last counts.
    pub fn apply(&mut self, changes: &[Change], grace: Grace<'_>) -> Result<(), FibFull> {
        if self.pool.quarantined() > QUARANTINE_MAX {
            self.reclaim(grace);
        }
        let mut result = self.try_apply(changes);
        if result.is_err() && self.pool.quarantined() > 0 && self.reclaim(grace) {
            result = self.try_apply(changes);
        }
        if result.is_err() && changes.iter().all(|(_, route)| route.is_none()) {
            return self.remove_in_pieces(changes, grace);
        }
        result
    }

    /// Whoever wants to make room must not need more of it than there is.
    fn remove_in_pieces(&mut self, changes: &[Change], grace: Grace<'_>) -> Result<(), FibFull> {
        let before: Vec<Change> =
            changes.iter().map(|(prefix, _)| (*prefix, self.route(*prefix))).collect();
        for (done, piece) in changes.chunks(PIECE).enumerate() {
            let is_done = self.try_apply(piece).is_ok()
                || (self.reclaim(grace) && self.try_apply(piece).is_ok())
                || piece.iter().all(|change| self.try_apply(std::slice::from_ref(change)).is_ok());
            if !is_done {
                // It was there before, and so there is room for it.
                for change in before.iter().take((done + 1) * PIECE) {
                    let _ = self.try_apply(std::slice::from_ref(change));
                }
                return Err(FibFull);
            }
        }
        Ok(())
    }

    /// Makes these prefixes all that there is, for every packet at one instant, or changes nothing.
    pub fn replace(
        &mut self,
        prefixes: impl IntoIterator<Item = (Prefix, RouteId)>,
        grace: Grace<'_>,
    ) -> Result<(), FibFull> {
        let mut tries = new_tries();
        for (prefix, route) in prefixes {
            tries[index(prefix.family())].set(Key::of(prefix), Some(id(route)));
        }
        self.swing(tries, grace)
    }

    /// As [`Self::apply`], but every packet sees all of the changes or none.
    pub fn apply_at_once(&mut self, changes: &[Change], grace: Grace<'_>) -> Result<(), FibFull> {
        let mut tries = new_tries();
        for (old, new) in self.tries.iter().zip(&mut tries) {
            old.for_each(&mut |key, id| {
                new.set(key, Some(id));
            });
        }
        for (prefix, route) in changes {
            tries[index(prefix.family())].set(Key::of(*prefix), route.map(id));
        }
        self.swing(tries, grace)
    }

    /// Writes these under the other root, and makes it the one that counts.
    fn swing(&mut self, mut tries: [Trie; 2], grace: Grace<'_>) -> Result<(), FibFull> {
        if self.pool.quarantined() > 0 || self.other_is_busy {
            let is_quiet = self.reclaim(grace);
            if self.other_is_busy && !is_quiet {
                return Err(FibFull);
            }
        }
        let other = 1 - self.active;
        let reserve = self.pool.reserve();
        self.clear_root(other);
        let mut stages: [Stage; 2] = Default::default();
        for at in 0..2 {
            let words = self.memory.as_ref();
            let written = stages[at].write(&mut tries[at], other, words, &mut self.pool, reserve);
            if written.is_err() {
                for (stage, trie) in stages.iter_mut().zip(&mut tries) {
                    stage.roll_back(trie, &mut self.pool);
                }
                return Err(FibFull);
            }
        }
        for (stage, trie) in stages.iter_mut().zip(&mut tries) {
            stage.publish(self.memory.as_ref());
            stage.commit(trie, &mut self.pool);
        }
        self.active = other;
        self.store_active();
        self.other_is_busy = true;
        for trie in std::mem::replace(&mut self.tries, tries) {
            trie.for_each_block(|block| self.pool.quarantine(block));
        }
        self.reclaim(grace);
        Ok(())
    }

    fn try_apply(&mut self, changes: &[Change]) -> Result<(), FibFull> {
        let may_be_refused = |route: RouteId| route != ROUTE_LOCAL;
        let adds = changes.iter().any(|(_, route)| route.is_some_and(may_be_refused));
        let reserve = if adds { self.pool.reserve() } else { 0 };
        let mut undo = Vec::with_capacity(changes.len());
        for (prefix, route) in changes {
            let before = self.set(*prefix, route.map(id));
            undo.push((*prefix, before));
        }
        for (stage, trie) in self.stages.iter_mut().zip(&mut self.tries) {
            let words = self.memory.as_ref();
            if stage.write(trie, self.active, words, &mut self.pool, reserve).is_err() {
                self.roll_back(undo);
                return Err(FibFull);
            }
        }
        // Whoever sees a store below also sees the nodes that it points to.
        fence(Release);
        for (stage, trie) in self.stages.iter_mut().zip(&mut self.tries) {
            stage.publish(self.memory.as_ref());
            stage.commit(trie, &mut self.pool);
        }
        Ok(())
    }

    fn roll_back(&mut self, undo: Vec<(Prefix, Option<Id>)>) {
        for (stage, trie) in self.stages.iter_mut().zip(&mut self.tries) {
            stage.roll_back(trie, &mut self.pool);
        }
        for (prefix, before) in undo.into_iter().rev() {
            self.set(prefix, before);
        }
    }

    fn set(&mut self, prefix: Prefix, id: Option<Id>) -> Option<Id> {
        self.tries[index(prefix.family())].set(Key::of(prefix), id)
    }

    fn trie(&self, family: Family) -> &Trie {
        &self.tries[index(family)]
    }

    fn reclaim(&mut self, grace: Grace<'_>) -> bool {
        let is_over = grace();
        if is_over {
            self.pool.release();
            self.other_is_busy = false;
        }
        is_over
    }

    fn store_active(&self) {
        self.memory.as_ref()[ACTIVE_AT as usize].store(self.active | self.stops, Release);
    }

    fn clear_root(&self, root: u32) {
        for trie in &self.tries {
            let at = trie.root.at(root) as usize;
            for word in &self.memory.as_ref()[at..at + trie.root.slots() as usize] {
                word.store(leaf(NONE), Relaxed);
            }
        }
    }
}

fn new_tries() -> [Trie; 2] {
    Family::ALL.map(|family| Trie::new(Root(family)))
}

fn index(family: Family) -> usize {
    match family {
        Family::Inet => 0,
        Family::Inet6 => 1,
    }
}

fn id(route: RouteId) -> Id {
    let id = Id::try_from(route).ok().filter(|id| id & CHILD == 0);
    id.expect("there are no more ids than 2^15")
}

#[cfg(test)]
mod tests;
