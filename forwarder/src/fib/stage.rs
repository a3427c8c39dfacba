//! A change on its way into memory: what no reader can see yet is written at once, what readers
//! look at is noted. Then all of it becomes true, or nothing has happened.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forwarder_common::fib::{NODE_HEADER, NODES_AT, UNIT, VALUES};
use smallvec::SmallVec;

use super::{
    FibFull,
    image::{Image, Values, child_at, id_of, is_leaf, leaf},
    pool::{Block, Pool},
    trie::{DirtySlot, Id, Node, Placed, Trie},
};

/// Nodes or slots of a change for which room is kept.
const ROOM_KEPT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Stage {
    /// Words that readers look at, and what is to be there.
    stores: Vec<(u32, u32)>,
    taken: Vec<Block>,
    unlinked: Vec<Block>,
    /// Nodes that were looked at, those below first.
    rendered: Vec<Rendered>,
    slots: Vec<DirtySlot>,
    /// What the covers of slots were before.
    covers: Vec<(u32, Id)>,
}

/// What is to be noted of a node once it is published.
#[derive(Debug)]
struct Rendered {
    node: u32,
    placed: Option<Placed>,
    /// The node above and the value there; `None` below a slot.
    above: Option<(u32, u8)>,
    cover: Id,
    value: u32,
}

impl Stage {
    /// Writes what has changed in the trie, and leaves `reserve` units.
    pub(super) fn write(
        &mut self,
        trie: &mut Trie,
        active: u32,
        memory: &[AtomicU32],
        pool: &mut Pool,
        reserve: u32,
    ) -> Result<(), FibFull> {
        let covers = &mut self.covers;
        trie.spread_shorts(|slot, before| covers.push((slot, before)));
        trie.take_dirty_slots(&mut self.slots);
        let root = trie.root.at(active);
        for at in 0..self.slots.len() {
            let DirtySlot { slot, has_new_cover } = self.slots[at];
            let cover = trie.covers[slot as usize];
            let value = match trie.top(slot) {
                Some(node) => Render { stage: self, trie, memory, pool, reserve }.node(
                    node,
                    None,
                    cover,
                    has_new_cover,
                )?,
                None => leaf(cover),
            };
            self.store(memory, root + slot, value);
        }
        Ok(())
    }

    /// Stores what readers look at. The caller has made sure that they see what lies behind it.
    pub(super) fn publish(&self, memory: &[AtomicU32]) {
        for (at, value) in &self.stores {
            memory[*at as usize].store(*value, Relaxed);
        }
    }

    /// Notes in the trie what is true now.
    pub(super) fn commit(&mut self, trie: &mut Trie, pool: &mut Pool) {
        for Rendered { node, placed, above, cover, value } in self.rendered.drain(..) {
            let of = trie.node_mut(node);
            (of.placed, of.is_dirty) = (placed, false);
            let is_empty = of.is_empty();
            let Some((above, at)) = above else { continue };
            if is_empty {
                trie.remove_child(above, at);
            } else if let Some(child) = trie.child_mut(above, at) {
                (child.cover, child.value, child.is_dirty) = (cover, value, false);
            }
        }
        trie.prune(&self.slots);
        for block in self.unlinked.drain(..) {
            pool.quarantine(block);
        }
        self.clear();
    }

    /// Gives back what was taken. The caller puts back the prefixes.
    pub(super) fn roll_back(&mut self, trie: &mut Trie, pool: &mut Pool) {
        for (slot, cover) in self.covers.drain(..).rev() {
            trie.covers[slot as usize] = cover;
        }
        for block in self.taken.drain(..) {
            pool.give_back(block);
        }
        // Nodes without prefixes are given up when they are looked at again.
        for DirtySlot { slot, .. } in &self.slots {
            trie.touch(*slot);
        }
        self.clear();
    }

    fn clear(&mut self) {
        if self.rendered.capacity() > ROOM_KEPT || self.slots.capacity() > ROOM_KEPT {
            // After a load nobody needs so much for long.
            *self = Self::default();
            return;
        }
        self.stores.clear();
        self.taken.clear();
        self.unlinked.clear();
        self.rendered.clear();
        self.slots.clear();
        self.covers.clear();
    }

    fn store(&mut self, memory: &[AtomicU32], at: u32, value: u32) {
        if memory[at as usize].load(Relaxed) != value {
            self.stores.push((at, value));
        }
    }
}

struct Render<'a> {
    stage: &'a mut Stage,
    trie: &'a Trie,
    memory: &'a [AtomicU32],
    pool: &'a mut Pool,
    /// Units to leave.
    reserve: u32,
}

/// What leads to children that have been looked at, by their value.
type Found = SmallVec<[(u8, u32); 4]>;

impl Render<'_> {
    /// The value that is to lead to this node. `cover` is for what it does not hold.
    fn node(
        &mut self,
        node: u32,
        above: Option<(u32, u8)>,
        cover: Id,
        has_new_cover: bool,
    ) -> Result<u32, FibFull> {
        let of = self.trie.node(node);
        let mut found = Found::new();
        if !of.is_dirty
            && !has_new_cover
            && let Some(placed) = of.placed
            && self.children_stay(node, of, placed.block(), &mut found)?
        {
            let value = placed.reference;
            self.stage.rendered.push(Rendered { node, placed: of.placed, above, cover, value });
            return Ok(value);
        }
        let values = self.values(node, of, cover, &found)?;
        let (value, placed) = self.encode(&values, of.placed)?;
        self.stage.rendered.push(Rendered { node, placed, above, cover, value });
        Ok(value)
    }

    /// Of a node that has not changed itself: whether it keeps its form, since only references to
    /// children are others, if anything. Those are noted, and what leads to which child.
    fn children_stay(
        &mut self,
        node: u32,
        of: &Node,
        block: Block,
        found: &mut Found,
    ) -> Result<bool, FibFull> {
        let mut keeps_form = true;
        for child in of.children().iter().filter(|child| child.is_dirty) {
            let value = self.node(child.node, Some((node, child.at)), child.cover, false)?;
            found.push((child.at, value));
            keeps_form &= value == child.value || !is_leaf(value) && !is_leaf(child.value);
        }
        if keeps_form {
            for (at, value) in found {
                if !is_leaf(*value)
                    && let Some(word) = child_at(self.block(block), *at)
                {
                    self.stage.store(self.memory, word_of(block) + word, *value);
                }
            }
        }
        Ok(keeps_form)
    }

    /// The values of a node. `found` says what leads to children that have been looked at.
    fn values(
        &mut self,
        node: u32,
        of: &Node,
        cover: Id,
        found: &Found,
    ) -> Result<Values, FibFull> {
        let mut values: Values = [leaf(cover); VALUES as usize];
        for entry in &of.entries {
            let first = usize::from(entry.first());
            values[first..first + entry.count()].fill(leaf(entry.id()));
        }
        for child in of.children() {
            let value = &mut values[usize::from(child.at)];
            let cover = id_of(*value);
            let known = found.iter().find(|(at, _)| *at == child.at);
            *value = match known {
                Some((_, value)) => *value,
                None if child.is_dirty || child.cover != cover => {
                    let above = Some((node, child.at));
                    self.node(child.node, above, cover, child.cover != cover)?
                }
                None => child.value,
            };
        }
        Ok(values)
    }

    /// Changes a block in place where it keeps its form, else writes a new one; none for one value.
    fn encode(
        &mut self,
        values: &Values,
        before: Option<Placed>,
    ) -> Result<(u32, Option<Placed>), FibFull> {
        let Some(image) = Image::of(values) else {
            self.stage.unlinked.extend(before.map(Placed::block));
            return Ok((values[0], None));
        };
        if let Some(placed) = before.filter(|before| before.kind() == image.kind())
            && image.has_form_of(self.block(placed.block()))
        {
            let at = word_of(placed.block()) + NODE_HEADER;
            for (at, word) in (at..).zip(image.values()) {
                self.stage.store(self.memory, at, *word);
            }
            return Ok((placed.reference, before));
        }
        let block = self.pool.take(image.units(), self.reserve).ok_or(FibFull)?;
        self.stage.taken.push(block);
        image.write(self.block(block));
        self.stage.unlinked.extend(before.map(Placed::block));
        let placed = Placed::new(block, image.kind());
        Ok((placed.reference, Some(placed)))
    }

    fn block(&self, block: Block) -> &[AtomicU32] {
        let at = word_of(block) as usize;
        &self.memory[at..at + (block.units * UNIT) as usize]
    }
}

fn word_of(block: Block) -> u32 {
    NODES_AT + block.first * UNIT
}
