//! What is in the FIB of one family: prefixes where they end, and which part of them has changed.

use std::{collections::BTreeMap, num::NonZeroU8};

use forwarder_common::{
    abi::ROUTE_NONE,
    fib::{STRIDE, VALUES, WIDE},
};
use smallvec::SmallVec;

use super::{
    key::{Key, Root},
    pool::Block,
};

/// A route id as it lies here. There are at most 2^15 of them.
pub(super) type Id = u16;

#[expect(clippy::cast_possible_truncation, reason = "it is 2")]
pub(super) const NONE: Id = ROUTE_NONE as Id;

#[expect(clippy::cast_possible_truncation, reason = "it is 6")]
const NODE_BITS: u8 = STRIDE as u8;

/// Prefixes that end within six bits of each other, below a slot or a child.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Sorted: shorter prefixes first. Most nodes have few.
    pub(super) entries: SmallVec<[Entry; 8]>,
    /// Sorted by value. Most nodes have none, and so lie in one cache line.
    children: Option<Box<SmallVec<[Child; 2]>>>,
    /// Where its values lie; `None` where they are all one.
    pub(super) placed: Option<Placed>,
    /// Its own prefixes have changed, or which children it has, since its values were found.
    pub(super) is_dirty: bool,
}

const _: () = assert!(size_of::<Node>() == 64, "a cache line each");

/// A node in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// What leads to it: where it starts, and whether it is wide.
    pub(super) reference: u32,
    /// Never zero, which makes room for `None`.
    units: NonZeroU8,
}

impl Placed {
    pub(super) fn new(block: Block, kind: u32) -> Self {
        let units = u8::try_from(block.units).ok().and_then(NonZeroU8::new);
        Self { reference: block.first | kind, units: units.expect("nodes have 1 to 49 units") }
    }

    pub(super) fn block(self) -> Block {
        Block { first: self.reference & !WIDE, units: self.units.get().into() }
    }

    /// [`WIDE`] or zero.
    pub(super) fn kind(self) -> u32 {
        self.reference & WIDE
    }
}

/// A prefix of 1 to 6 bits more than its node: the length less one, its first value, its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u32);

impl Entry {
    fn new(key: Key, depth: u8, id: Id) -> Self {
        let len = key.len - depth - 1;
        Self(u32::from(len) << 24 | u32::from(key.value(depth)) << 16 | u32::from(id))
    }

    pub(super) fn first(self) -> u8 {
        self.0.to_le_bytes()[2]
    }

    /// How many values lie in it.
    pub(super) fn count(self) -> usize {
        (VALUES / 2) as usize >> (self.0 >> 24)
    }

    pub(super) fn id(self) -> Id {
        let [low, high, ..] = self.0.to_le_bytes();
        Id::from_le_bytes([low, high])
    }

    /// All but the route.
    fn place(self) -> u32 {
        self.0 >> 16
    }
}

/// A node below another, with what the other has to know of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    /// Which value of the node above it is.
    pub(super) at: u8,
    /// Something in it or below has changed since `value` was found.
    pub(super) is_dirty: bool,
    /// The route for what no prefix in it holds.
    pub(super) cover: Id,
    pub(super) node: u32,
    /// What leads to it: a reference, or a leaf.
    pub(super) value: u32,
}

/// The node below a slot of the root.
#[derive(Clone, Copy, Debug, Default)]
struct Top(u32);

/// A slot whose value may have to change.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtySlot {
    pub(super) slot: u32,
    pub(super) has_new_cover: bool,
}

const TOP_DIRTY: u32 = 1 << 31;
/// The cover has changed.
const TOP_COVER: u32 = 1 << 30;
const TOP_NODE: u32 = TOP_COVER - 1;

#[derive(Debug)]
pub(super) struct Trie {
    pub(super) root: Root,
    /// Prefixes that end in the root.
    shorts: BTreeMap<Key, Id>,
    /// By slot: the route for what no node holds.
    pub(super) covers: Vec<Id>,
    tops: Vec<Top>,
    nodes: Vec<Node>,
    nodes_free: Vec<u32>,
    /// Slots whose value may have to change, each once.
    dirty_slots: Vec<u32>,
    dirty_shorts: Vec<Key>,
    len: u64,
}

impl Trie {
    pub(super) fn new(root: Root) -> Self {
        let slots = root.slots() as usize;
        Self {
            root,
            shorts: BTreeMap::new(),
            covers: vec![NONE; slots],
            tops: vec![Top::default(); slots],
            nodes: Vec::new(),
            nodes_free: Vec::new(),
            dirty_slots: Vec::new(),
            dirty_shorts: Vec::new(),
            len: 0,
        }
    }

    /// Prefixes in it.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn get(&self, key: Key) -> Option<Id> {
        if self.root.holds(key) {
            return self.shorts.get(&key).copied();
        }
        let (slot, mut depth) = self.root.slot(key.bits);
        let mut node = self.top(slot)?;
        while key.len - depth > NODE_BITS {
            node = self.node(node).child(key.value(depth))?.node;
            depth += NODE_BITS;
        }
        self.node(node).entry(Entry::new(key, depth, 0)).ok().map(|(_, id)| id)
    }

    /// Puts a prefix in, or takes it out. Gives back what it led to before.
    pub(super) fn set(&mut self, key: Key, id: Option<Id>) -> Option<Id> {
        let before = if id.is_none() { Some(self.get(key)?) } else { None };
        let before = if self.root.holds(key) {
            self.dirty_shorts.push(key);
            match id {
                Some(id) => self.shorts.insert(key, id),
                None => self.shorts.remove(&key),
            }
        } else {
            let (node, depth) = self.reach(key);
            let node = &mut self.nodes[node as usize];
            node.is_dirty = true;
            let entry = Entry::new(key, depth, id.unwrap_or(0));
            match (node.entry(entry), id) {
                (Ok((at, before)), Some(_)) => {
                    node.entries[at] = entry;
                    Some(before)
                }
                (Ok((at, before)), None) => {
                    node.entries.remove(at);
                    Some(before)
                }
                (Err(at), Some(_)) => {
                    node.entries.insert(at, entry);
                    None
                }
                (Err(_), None) => before,
            }
        };
        self.len = self.len + u64::from(id.is_some()) - u64::from(before.is_some());
        before
    }

    /// The node that a prefix ends in, made where there is none; the way to it becomes dirty.
    fn reach(&mut self, key: Key) -> (u32, u8) {
        let (slot, mut depth) = self.root.slot(key.bits);
        self.touch(slot);
        let mut node = self.top(slot).unwrap_or_else(|| {
            let node = self.new_node();
            self.tops[slot as usize].0 = (node + 1) | TOP_DIRTY;
            node
        });
        while key.len - depth > NODE_BITS {
            let value = key.value(depth);
            let at = self.node(node).child_at(value).unwrap_or_else(|at| {
                let new = self.new_node();
                let above = &mut self.nodes[node as usize];
                let child = Child { at: value, is_dirty: true, cover: NONE, node: new, value: 0 };
                above.children_mut().insert(at, child);
                above.is_dirty = true;
                at
            });
            let child = &mut self.nodes[node as usize].children_mut()[at];
            child.is_dirty = true;
            node = child.node;
            depth += NODE_BITS;
        }
        (node, depth)
    }

    pub(super) fn top(&self, slot: u32) -> Option<u32> {
        (self.tops[slot as usize].0 & TOP_NODE).checked_sub(1)
    }

    /// Marks a slot as one to be looked at.
    pub(super) fn touch(&mut self, slot: u32) {
        let top = &mut self.tops[slot as usize];
        if top.0 & TOP_DIRTY == 0 {
            top.0 |= TOP_DIRTY;
            self.dirty_slots.push(slot);
        }
    }

    /// Moves the slots to be looked at, which are clean from then on.
    pub(super) fn take_dirty_slots(&mut self, slots: &mut Vec<DirtySlot>) {
        let tops = &mut self.tops;
        slots.extend(self.dirty_slots.drain(..).map(|slot| {
            let top = &mut tops[slot as usize].0;
            let has_new_cover = *top & TOP_COVER != 0;
            *top &= TOP_NODE;
            DirtySlot { slot, has_new_cover }
        }));
    }

    /// Brings `covers` up to date with the prefixes in the root. `undo` learns of each change.
    pub(super) fn spread_shorts(&mut self, mut undo: impl FnMut(u32, Id)) {
        for key in std::mem::take(&mut self.dirty_shorts) {
            let above = (0..key.len).rev().find_map(|len| self.shorts.get(&key.shortened(len)));
            let cover = above.copied().unwrap_or(NONE);
            let ranges = self.root.ranges(key);
            let mut painted = ranges.clone().map(|range| vec![cover; range.len()]);
            let last = Key { bits: key.last_bits(), len: u8::MAX };
            for (inner, id) in self.shorts.range(Key { len: 0, ..key }..=last) {
                if inner.len < key.len {
                    continue;
                }
                let inner_ranges = self.root.ranges(*inner);
                for ((painted, range), inner) in painted.iter_mut().zip(&ranges).zip(inner_ranges) {
                    if !inner.is_empty() {
                        let from = (inner.start - range.start) as usize;
                        painted[from..from + inner.len()].fill(*id);
                    }
                }
            }
            for (range, painted) in ranges.into_iter().zip(painted) {
                for (slot, id) in range.zip(painted) {
                    let cover = &mut self.covers[slot as usize];
                    if *cover != id {
                        undo(slot, std::mem::replace(cover, id));
                        self.touch(slot);
                        self.tops[slot as usize].0 |= TOP_COVER;
                    }
                }
            }
        }
    }

    pub(super) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    pub(super) fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// Gives up nodes that hold nothing any more, below these slots.
    pub(super) fn prune(&mut self, slots: &[DirtySlot]) {
        for DirtySlot { slot, .. } in slots {
            if let Some(node) = self.top(*slot)
                && self.node(node).is_empty()
            {
                self.tops[*slot as usize].0 &= !TOP_NODE;
                self.free_node(node);
            }
        }
    }

    pub(super) fn child_mut(&mut self, above: u32, at: u8) -> Option<&mut Child> {
        let above = self.node_mut(above);
        let at = above.child_at(at).ok()?;
        above.children_mut().get_mut(at)
    }

    pub(super) fn remove_child(&mut self, above: u32, at: u8) {
        let above = self.node_mut(above);
        if let Ok(at) = above.child_at(at) {
            let children = above.children_mut();
            let child = children.remove(at);
            if children.is_empty() {
                above.children = None;
            }
            self.free_node(child.node);
        }
    }

    fn free_node(&mut self, node: u32) {
        self.nodes[node as usize] = Node::default();
        self.nodes_free.push(node);
    }

    fn new_node(&mut self) -> u32 {
        self.nodes_free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            u32::try_from(self.nodes.len() - 1).expect("each takes memory of the FIB, or none")
        })
    }

    pub(super) fn for_each_block(&self, visit: impl FnMut(Block)) {
        self.nodes.iter().filter_map(|node| node.placed).map(Placed::block).for_each(visit);
    }

    /// Calls `visit` with every prefix, in no order.
    pub(super) fn for_each(&self, visit: &mut impl FnMut(Key, Id)) {
        for (key, id) in &self.shorts {
            visit(*key, *id);
        }
        for slot in 0..self.root.slots() {
            if let Some(node) = self.top(slot) {
                let at = self.root.key_of(slot);
                self.visit_node(node, at, visit);
            }
        }
    }

    fn visit_node(&self, node: u32, at: Key, visit: &mut impl FnMut(Key, Id)) {
        let node = self.node(node);
        let below = |value: u8, len: u8| Key {
            bits: at.bits | (u128::from(value) << (128 - STRIDE)) >> at.len,
            len: at.len + len,
        };
        for entry in &node.entries {
            visit(below(entry.first(), entry.len()), entry.id());
        }
        for child in node.children() {
            self.visit_node(child.node, below(child.at, NODE_BITS), visit);
        }
    }
}

impl Entry {
    /// Bits more than its node.
    fn len(self) -> u8 {
        self.0.to_le_bytes()[3] + 1
    }
}

impl Node {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.children().is_empty()
    }

    pub(super) fn children(&self) -> &[Child] {
        self.children.as_deref().map_or(&[], SmallVec::as_slice)
    }

    fn children_mut(&mut self) -> &mut SmallVec<[Child; 2]> {
        self.children.get_or_insert_default()
    }

    fn child(&self, at: u8) -> Option<&Child> {
        self.children().get(self.child_at(at).ok()?)
    }

    /// Where the child of a value is, or would have to be.
    fn child_at(&self, value: u8) -> Result<usize, usize> {
        self.children().binary_search_by_key(&value, |child| child.at)
    }

    /// Where a prefix is and what it leads to, or where it would have to be.
    fn entry(&self, entry: Entry) -> Result<(usize, Id), usize> {
        let at = self.entries.binary_search_by_key(&entry.place(), |entry| entry.place())?;
        Ok((at, self.entries[at].id()))
    }
}
