//! The compact FIB: one piece of memory that both families and both programs share.
//!
//! The first bits of an address choose a slot of a root, then each byte a value of a node, until a
//! value is a leaf. A node holds 256 values as runs of equal ones, so what most networks look like
//! costs a few words:
//!
//! ```text
//! word 0..8   256 bits, low word first: bit i is set where value i differs from value i − 1
//! word 8      four bytes, low byte first: bits set before bits 0, 64, 128, 192
//! word 9..    the runs' values; where all of them are leaves, two route ids a word, low half first
//! ```
//!
//! Whoever writes never changes what a node looks like: a new node is written, then the one word
//! that points to it. Words of values are changed in place, each by one aligned store. So a reader
//! sees the old answer or the new one, provided that no node is used again before every reader that
//! may stand in it has left.

use crate::abi::{ROUTE_FILTERED, ROUTE_PUNT, RouteId};

/// A value that ends the search; its low bits are the route id.
pub const LEAF: u32 = 1 << 31;
const ROUTE_ID: u32 = 0xffff;

/// In a reference: the node's values are all leaves, and take half a word each.
pub const NARROW: u32 = 1 << 30;

/// Words of a node before its values.
pub const NODE_HEADER: u32 = 9;
/// Words of what references count: nodes start at even words, since bits are read by eight bytes.
pub const UNIT: u32 = 2;
/// Units of the largest node: 256 values.
pub const NODE_UNITS_MAX: u32 = (NODE_HEADER + 256).div_ceil(UNIT);

/// Slots of a root: 16 bits of an IPv4 address.
pub const SLOTS4: u32 = 1 << 16;
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
/// What a reader may touch behind the last unit: the verifier believes a sum of two bytes only to
/// be below 511.
pub const SLACK: u32 = 1024;

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
    /// Bits 64 · `quarter` and on; `quarter` is below 4.
    fn bits(&self, quarter: u32) -> u64;

    /// Bits set before those.
    fn rank(&self, quarter: u32) -> u32;

    /// The value of a run.
    fn value(&self, run: u32) -> u32;

    /// The value of a run of a narrow node: a route id.
    fn route(&self, run: u32) -> u16;
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
    let value = memory.word(root + (address >> 16));
    descend::<2>(memory, value, u64::from(address) << 48, 0)
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
    descend::<14>(memory, value, high_rest, low << used)
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

/// Goes on from a root's value, a byte of the rest of the address a step.
#[inline(always)]
fn descend<const STEPS: usize>(
    memory: &impl Memory,
    mut value: u32,
    mut high: u64,
    mut low: u64,
) -> RouteId {
    for _ in 0..STEPS {
        if value & LEAF != 0 {
            break;
        }
        let node = memory.node(value & !NARROW);
        let run = run(&node, (high >> 56) as u32);
        if value & NARROW != 0 {
            return node.route(run).into();
        }
        value = node.value(run);
        high = (high << 8) | (low >> 56);
        low <<= 8;
    }
    if value & LEAF != 0 { value & ROUTE_ID } else { ROUTE_PUNT }
}

/// The run that a byte is in.
#[inline(always)]
fn run(node: &impl Node, byte: u32) -> u32 {
    let quarter = (byte >> 6) & 3;
    let up_to_byte = node.bits(quarter) << (63 - (byte & 63));
    node.rank(quarter) + up_to_byte.count_ones()
}
