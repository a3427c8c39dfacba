//! The compact FIB: one piece of memory that both families and both programs share.
//!
//! The first bits of an address choose a slot of a root, then every six more a value of a node,
//! until a value is a leaf. A node holds 64 values as runs of equal ones, so what most networks
//! look like costs a few words, most often in one cache line:
//!
//! ```text
//! word 0, 1   64 bits, low word first: bit i is set where value i differs from value i − 1
//! word 2..    the runs' values, low bits first; where all of them are route ids below 256, as most
//!             are, 8 bits each; else 16 bits each: a route id, or, with CHILD, at which word of
//!             the node the reference to a child lies
//! behind      the references to children, a word each
//! ```
//!
//! Whoever writes never changes what a node looks like: a new node is written, then the one word
//! that points to it. Words of values are changed in place, each by one aligned store. So a reader
//! sees the old answer or the new one, provided that no node is used again before every reader that
//! may stand in it has left.

use crate::abi::{ROUTE_FILTERED, ROUTE_PUNT, RouteId};

/// A value of a root that ends the search; its low bits are the route id. Without it, the value
/// is a reference to a node.
pub const LEAF: u32 = 1 << 31;
const ROUTE_ID: u32 = 0xffff;

/// In a reference: the node's values have 16 bits.
pub const WIDE: u32 = 1 << 30;

/// Bits of an address that a node looks at.
pub const STRIDE: u32 = 6;
/// Values of a node.
pub const VALUES: u32 = 1 << STRIDE;

/// A value of 16 bits that leads on: the other bits say at which of the node's words the reference
/// to a child lies. Without it, the value is a route id.
pub const CHILD: u16 = 1 << 15;
/// More than the words of the largest node.
const CHILD_AT: u16 = 0x7f;

/// Words of a node before its values.
pub const NODE_HEADER: u32 = 2;
/// Words of what references count: nodes start at even words, since bits are read by eight bytes.
pub const UNIT: u32 = 2;
/// Words of the largest node: 64 values, each a child.
pub const NODE_WORDS_MAX: u32 = NODE_HEADER + VALUES / 2 + VALUES;
/// Units of the largest node.
pub const NODE_UNITS_MAX: u32 = NODE_WORDS_MAX.div_ceil(UNIT);

/// Units of a cache line of 64 bytes. Where another size is right, this costs nothing but speed.
pub const LINE_UNITS: u32 = 8;

/// Slots of a root: 18 bits of an IPv4 address.
pub const SLOTS4: u32 = 1 << SLOT_BITS4;
pub const SLOT_BITS4: u32 = 18;
/// Slots for 2000::/3, by the 21 bits behind the first three.
pub const SLOTS6_GLOBAL: u32 = 1 << 21;
/// And behind them those for everything else, by 16 bits.
pub const SLOTS6: u32 = SLOTS6_GLOBAL + (1 << 16);

/// The word that says where to start: its lowest bit, which of the two roots of each family counts;
/// the next two, that a family is all punt, since not everything that Linux has could be written;
/// two more, that a family is stopped, since XDP would bypass rules that Linux has for it.
pub const ACTIVE_AT: u32 = 0;
pub const PUNT_ALL4: u32 = 1 << 1;
pub const PUNT_ALL6: u32 = 1 << 2;
pub const FILTERED4: u32 = 1 << 3;
pub const FILTERED6: u32 = 1 << 4;
/// Where the first root of each family starts; the second follows it.
pub const ROOT4_AT: u32 = 16;
pub const ROOT6_AT: u32 = ROOT4_AT + 2 * SLOTS4;
/// Where nodes start. References count from here, in units.
pub const NODES_AT: u32 = ROOT6_AT + 2 * SLOTS6;
/// What a reader may touch behind the last unit: the verifier believes of the ones of 64 bits only
/// that they are a byte.
pub const SLACK: u32 = 1024;

const _: () = {
    assert!(NODE_WORDS_MAX <= CHILD_AT as u32);
    assert!(NODES_AT.is_multiple_of(LINE_UNITS * UNIT), "units are counted from a cache line");
};

/// Words of memory for so many units of nodes.
pub const fn words(units: u32) -> u32 {
    NODES_AT + units * UNIT + SLACK
}

/// Memory as a reader sees it.
pub trait Memory {
    type Node: Node;

    /// A word below [`NODES_AT`].
    fn word(&self, at: u32) -> u32;

    fn node(&self, reference: u32) -> Self::Node;
}

pub trait Node {
    /// Where values differ from the one before.
    fn bits(&self) -> u64;

    /// The value of a run, which is below 256, of a wide node.
    fn value(&self, run: u32) -> u16;

    /// And of one that is not.
    fn narrow_value(&self, run: u32) -> u8;

    /// The reference at a word of the node, which is below 128.
    fn reference(&self, at: u16) -> u32;
}

/// The route of the longest prefix that holds this address; [`crate::abi::ROUTE_NONE`] is one too.
#[inline(always)]
pub fn lookup4(memory: &impl Memory, destination: [u8; 4]) -> RouteId {
    let address = u32::from_be_bytes(destination);
    let active = memory.word(ACTIVE_AT);
    if active & (PUNT_ALL4 | FILTERED4) != 0 {
        return stopped(active & FILTERED4 != 0);
    }
    let root = ROOT4_AT + (active & 1) * SLOTS4;
    let value = memory.word(root + (address >> (32 - SLOT_BITS4)));
    descend::<3>(memory, value, u64::from(address) << (32 + SLOT_BITS4), 0)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of the address")]
pub fn lookup6(memory: &impl Memory, destination: [u8; 16]) -> RouteId {
    let address = u128::from_be_bytes(destination);
    let (high, low) = ((address >> 64) as u64, address as u64);
    let active = memory.word(ACTIVE_AT);
    if active & (PUNT_ALL6 | FILTERED6) != 0 {
        return stopped(active & FILTERED6 != 0);
    }
    let root = ROOT6_AT + (active & 1) * SLOTS6;
    let (slot, used) = slot6(high);
    let value = memory.word(root + slot);
    let high_rest = (high << used) | (low >> (64 - used));
    descend::<19>(memory, value, high_rest, low << used)
}

/// Where everything of a stopped family leads: rules are what somebody can do something about.
#[inline(always)]
const fn stopped(is_filtered: bool) -> RouteId {
    if is_filtered { ROUTE_FILTERED } else { ROUTE_PUNT }
}

/// The slot for these first 64 bits of an address, and how many of them it has used.
#[inline(always)]
pub const fn slot6(high: u64) -> (u32, u32) {
    if high >> 61 == 1 {
        ((high >> 40) as u32 & (SLOTS6_GLOBAL - 1), 24)
    } else {
        (SLOTS6_GLOBAL + (high >> 48) as u32, 16)
    }
}

/// Goes on from a root's value, six bits of the rest of the address a step.
#[inline(always)]
fn descend<const STEPS: usize>(
    memory: &impl Memory,
    value: u32,
    mut high: u64,
    mut low: u64,
) -> RouteId {
    if value & LEAF != 0 {
        return value & ROUTE_ID;
    }
    let mut reference = value;
    for _ in 0..STEPS {
        let node = memory.node(reference & !WIDE);
        let run = run(node.bits(), high);
        if reference & WIDE == 0 {
            return node.narrow_value(run).into();
        }
        let value = node.value(run);
        if value & CHILD == 0 {
            return value.into();
        }
        reference = node.reference(value & CHILD_AT);
        high = (high << STRIDE) | (low >> (64 - STRIDE));
        low <<= STRIDE;
    }
    ROUTE_PUNT
}

/// The run that the first six bits of an address are in.
#[inline(always)]
fn run(bits: u64, address: u64) -> u32 {
    let up_to_value = bits << (u64::from(VALUES - 1) - (address >> (64 - STRIDE)));
    up_to_value.count_ones()
}
