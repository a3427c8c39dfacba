//! A node as it lies in memory: its values as runs.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use forwarder_common::fib::{LEAF, NARROW, NODE_HEADER, UNIT};

use super::trie::Id;

/// The values of a node, one for each byte.
pub(super) type Values = [u32; 256];

pub(super) fn leaf(id: Id) -> u32 {
    LEAF | u32::from(id)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half of a leaf")]
pub(super) fn id_of(leaf: u32) -> Id {
    leaf as Id
}

pub(super) struct Image {
    header: [u32; NODE_HEADER as usize],
    is_narrow: bool,
    /// The runs' values, in words.
    words: u32,
    values: Values,
}

impl Image {
    /// `None` where all values are one.
    pub(super) fn of(values: &Values) -> Option<Self> {
        let mut header = [0; NODE_HEADER as usize];
        let mut runs = [0; 256];
        let mut changes = 0_u32;
        let (mut before, mut all) = (values[0], LEAF);
        for (word, values) in values.chunks_exact(32).enumerate() {
            if word % 2 == 0 {
                // At most 192.
                header[8] |= changes << (4 * word);
            }
            let mut bits = 0;
            for (bit, value) in values.iter().enumerate() {
                // Without a branch, which nobody could predict: what is written last to a run's
                // place stays there.
                let differs = u32::from(*value != before);
                bits |= differs << bit;
                changes += differs;
                runs[(changes & 0xff) as usize] = *value;
                all &= *value;
                before = *value;
            }
            header[word] = bits;
        }
        if changes == 0 {
            return None;
        }
        let mut image = Self { header, is_narrow: all != 0, words: changes + 1, values: runs };
        if image.is_narrow {
            image.pair();
        }
        Some(image)
    }

    /// Puts two route ids in a word.
    fn pair(&mut self) {
        self.words = self.words.div_ceil(2);
        for pair in 0..self.words as usize {
            let (low, high) = (id_of(self.values[2 * pair]), id_of(self.values[2 * pair + 1]));
            self.values[pair] = u32::from(low) | u32::from(high) << 16;
        }
    }

    /// What a reference to it has beside its place: [`NARROW`] or zero.
    pub(super) fn kind(&self) -> u32 {
        if self.is_narrow { NARROW } else { 0 }
    }

    pub(super) fn units(&self) -> u32 {
        (NODE_HEADER + self.words).div_ceil(UNIT)
    }

    pub(super) fn values(&self) -> &[u32] {
        &self.values[..self.words as usize]
    }

    pub(super) fn has_header(&self, block: &[AtomicU32]) -> bool {
        self.header.iter().zip(block).all(|(word, at)| *word == at.load(Relaxed))
    }

    pub(super) fn write(&self, block: &[AtomicU32]) {
        for (at, word) in block.iter().zip(self.header.iter().chain(self.values())) {
            at.store(*word, Relaxed);
        }
    }
}
