//! The memory of the FIB as a program reads it. Each offset is bounded by what the verifier knows:
//! constants, a mask, bytes.

use forwarder_common::fib::{Memory, NODE_HEADER, NODES_AT, Node, UNIT};

pub(crate) struct FibMemory {
    start: *const u64,
    mask: u32,
}

impl FibMemory {
    /// The one element of a map for `mask + 1` units, a power of two.
    #[inline(always)]
    pub(crate) fn new(start: *const u64, mask: u32) -> Self {
        Self { start, mask }
    }
}

impl Memory for FibMemory {
    type Node = FibNode;

    #[inline(always)]
    fn word(&self, at: u32) -> u32 {
        let word = self.start.cast::<u32>().wrapping_add(at as usize);
        // SAFETY: the words below `NODES_AT` are all there; the daemon changes each by one store.
        unsafe { word.read_volatile() }
    }

    #[inline(always)]
    fn node(&self, reference: u32) -> FibNode {
        // Masked, it is one of the units that the map was made for.
        FibNode(self.start.wrapping_add((NODES_AT / UNIT + (reference & self.mask)) as usize))
    }
}

/// A node of the FIB. What is no node any more may hold anything, but the slack bounds it.
pub(crate) struct FibNode(*const u64);

impl Node for FibNode {
    #[inline(always)]
    fn bits(&self) -> u64 {
        // SAFETY: within the units, or the slack behind them.
        unsafe { self.0.read() }
    }

    #[inline(always)]
    fn value(&self, run: u32) -> u16 {
        let value = self.0.cast::<u16>().wrapping_add((2 * NODE_HEADER + run) as usize);
        // SAFETY: a run is a byte at most, within the slack.
        unsafe { value.read_volatile() }
    }

    #[inline(always)]
    fn narrow_value(&self, run: u32) -> u8 {
        let value = self.0.cast::<u8>().wrapping_add((4 * NODE_HEADER + run) as usize);
        // SAFETY: as in `value`.
        unsafe { value.read_volatile() }
    }

    #[inline(always)]
    fn reference(&self, at: u16) -> u32 {
        let reference = self.0.cast::<u32>().wrapping_add(at.into());
        // SAFETY: seven bits at most, within the slack.
        unsafe { reference.read_volatile() }
    }
}
