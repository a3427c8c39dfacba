//! Cache lines of the FIB that a lookup looks at: what the clock says of a cold lookup, without the
//! machine's noise. The first line, which says where to start, is in every cache.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use forwarder::prefix::Family;
use forwarder_common::fib::{
    Memory, NODE_HEADER, NODES_AT, Node, ROOT4_AT, UNIT, lookup4, lookup6,
};
use forwarder_tests::tables::high32;

/// Words of a cache line.
const LINE: u32 = 16;

struct Noted<'a> {
    words: &'a [AtomicU32],
    lines: RefCell<Vec<u32>>,
}

struct NotedNode<'a> {
    memory: &'a Noted<'a>,
    at: u32,
}

impl Noted<'_> {
    fn load(&self, at: u32) -> u32 {
        let (line, mut lines) = (at / LINE, self.lines.borrow_mut());
        if at >= ROOT4_AT && !lines.contains(&line) {
            lines.push(line);
        }
        self.words[at as usize].load(Relaxed)
    }
}

impl<'a> Memory for &'a Noted<'a> {
    type Node = NotedNode<'a>;

    fn word(&self, at: u32) -> u32 {
        self.load(at)
    }

    fn node(&self, reference: u32) -> Self::Node {
        NotedNode { memory: self, at: NODES_AT + reference * UNIT }
    }
}

impl NotedNode<'_> {
    fn value_word(&self, at: u32) -> [u8; 4] {
        self.memory.load(self.at + NODE_HEADER + at).to_le_bytes()
    }
}

impl Node for NotedNode<'_> {
    fn bits(&self) -> u64 {
        u64::from(self.memory.load(self.at)) | u64::from(self.memory.load(self.at + 1)) << 32
    }

    fn value(&self, run: u32) -> u16 {
        let [a, b, c, d] = self.value_word(run / 2);
        u16::from_le_bytes(if run.is_multiple_of(2) { [a, b] } else { [c, d] })
    }

    fn narrow_value(&self, run: u32) -> u8 {
        self.value_word(run / 4)[(run % 4) as usize]
    }

    fn reference(&self, at: u16) -> u32 {
        self.memory.load(self.at + u32::from(at))
    }
}

/// The mean of these destinations.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn a_lookup(words: &[AtomicU32], family: Family, destinations: &[u128]) -> f64 {
    let noted = Noted { words, lines: RefCell::default() };
    let mut sum = 0;
    for destination in destinations {
        match family {
            Family::Inet => lookup4(&&noted, high32(*destination).to_be_bytes()),
            Family::Inet6 => lookup6(&&noted, destination.to_be_bytes()),
        };
        sum += noted.lines.take().len();
    }
    sum as f64 / destinations.len() as f64
}
