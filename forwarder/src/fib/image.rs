//! A node as it lies in memory: its values as runs.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forwarder_common::fib::{CHILD, LEAF, NODE_HEADER, NODE_WORDS_MAX, UNIT, VALUES, WIDE};

use super::trie::Id;

/// The values of a node, one for each six bits of an address: leaves, or references to children.
pub(super) type Values = [u32; VALUES as usize];

/// Where a word of wide values says which of them are children.
const CHILDREN: u32 = (CHILD as u32) << 16 | CHILD as u32;

/// All bits that values of a narrow node have.
const NARROW_VALUES: u32 = 0xff;

pub(super) fn leaf(id: Id) -> u32 {
    LEAF | u32::from(id)
}

pub(super) fn is_leaf(value: u32) -> bool {
    value & LEAF != 0
}

#[expect(clippy::cast_possible_truncation, reason = "the low half of a leaf")]
pub(super) fn id_of(leaf: u32) -> Id {
    leaf as Id
}

pub(super) struct Image {
    words: [u32; NODE_WORDS_MAX as usize],
    len: usize,
    is_wide: bool,
    /// Behind the values: where the references to children start.
    children_at: usize,
}

impl Image {
    /// `None` where all values are one.
    pub(super) fn of(values: &Values) -> Option<Self> {
        let mut bits = 0_u64;
        let mut runs: Values = [0; VALUES as usize];
        let (mut last, mut before, mut any) = (0, values[0], 0);
        for (at, value) in values.iter().enumerate() {
            // Without a branch, which nobody could predict: what is written last to a run's place
            // stays there.
            let differs = *value != before;
            bits |= u64::from(differs) << at;
            last += usize::from(differs);
            runs[last % VALUES as usize] = *value;
            // A reference leaves the bit of leaves here.
            any |= *value ^ LEAF;
            before = *value;
        }
        if last == 0 {
            return None;
        }
        let is_wide = any & !NARROW_VALUES != 0;
        Some(Self::of_runs(bits, &runs[..=last], is_wide))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves of 64 bits")]
    fn of_runs(bits: u64, runs: &[u32], is_wide: bool) -> Self {
        let a_word = if is_wide { 2 } else { 4 };
        let children_at = NODE_HEADER as usize + runs.len().div_ceil(a_word);
        let mut image = Self { words: [0; _], len: children_at, is_wide, children_at };
        (image.words[0], image.words[1]) = (bits as u32, (bits >> 32) as u32);
        for (at, run) in runs.iter().enumerate() {
            let value = if is_leaf(*run) { id_of(*run) } else { image.push_child(*run) };
            let shift = 32 / a_word * (at % a_word);
            image.words[NODE_HEADER as usize + at / a_word] |= u32::from(value) << shift;
        }
        image
    }

    /// The value that says where this reference is.
    fn push_child(&mut self, reference: u32) -> u16 {
        self.words[self.len] = reference;
        self.len += 1;
        CHILD | u16::try_from(self.len - 1).expect("nodes have fewer words")
    }

    /// What a reference to it has beside its place: [`WIDE`] or zero.
    pub(super) fn kind(&self) -> u32 {
        if self.is_wide { WIDE } else { 0 }
    }

    pub(super) fn units(&self) -> u32 {
        u32::try_from(self.len).expect("nodes have fewer words").div_ceil(UNIT)
    }

    /// All that readers may see change: values, and references to children.
    pub(super) fn values(&self) -> &[u32] {
        &self.words[NODE_HEADER as usize..self.len]
    }

    /// Whether a node of this kind has the same runs, of which the same ones are children.
    pub(super) fn has_form_of(&self, block: &[AtomicU32]) -> bool {
        let (header, values) = self.words[..self.children_at].split_at(NODE_HEADER as usize);
        let is = |at: usize, bits: u32, word: u32| {
            block.get(at).is_some_and(|at| (at.load(Relaxed) ^ word) & bits == 0)
        };
        header.iter().enumerate().all(|(at, word)| is(at, u32::MAX, *word))
            && (!self.is_wide
                || (NODE_HEADER as usize..).zip(values).all(|(at, word)| is(at, CHILDREN, *word)))
    }

    pub(super) fn write(&self, block: &[AtomicU32]) {
        for (at, word) in block.iter().zip(&self.words[..self.len]) {
            at.store(*word, Relaxed);
        }
    }
}

/// At which word of a wide node its reference for this value is, if that leads to a child.
pub(super) fn child_at(block: &[AtomicU32], value: u8) -> Option<u32> {
    let word = |at: usize| block[at].load(Relaxed);
    let bits = u64::from(word(0)) | u64::from(word(1)) << 32;
    let run = (bits << (VALUES - 1 - u32::from(value))).count_ones();
    let pair = word((NODE_HEADER + run / 2) as usize);
    let half = (pair >> (16 * (run % 2))) & 0xffff;
    let at = half.checked_sub(CHILD.into())?;
    Some(at)
}
