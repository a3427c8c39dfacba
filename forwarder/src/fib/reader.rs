//! The FIB's memory as the programs read it, for whoever asks on the host.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering::Acquire},
};

use forwarder_common::{
    abi::RouteId,
    fib::{Memory, NODE_HEADER, NODES_AT, Node, UNIT, lookup4, lookup6},
};

/// Finds what a packet would find.
pub fn lookup(words: &[AtomicU32], destination: IpAddr) -> RouteId {
    match destination {
        IpAddr::V4(destination) => lookup4(&Words(words), destination.octets()),
        IpAddr::V6(destination) => lookup6(&Words(words), destination.octets()),
    }
}

#[derive(Clone, Copy)]
pub(super) struct Words<'a>(pub(super) &'a [AtomicU32]);

impl Words<'_> {
    fn load(self, at: u32) -> u32 {
        self.0[at as usize].load(Acquire)
    }
}

impl<'a> Memory for Words<'a> {
    type Node = Words<'a>;

    fn word(&self, at: u32) -> u32 {
        self.load(at)
    }

    fn node(&self, reference: u32) -> Self::Node {
        Words(&self.0[(NODES_AT + reference * UNIT) as usize..])
    }
}

impl Node for Words<'_> {
    fn bits(&self) -> u64 {
        u64::from(self.load(0)) | u64::from(self.load(1)) << 32
    }

    fn value(&self, run: u32) -> u16 {
        let [a, b, c, d] = self.load(NODE_HEADER + run / 2).to_le_bytes();
        u16::from_le_bytes(if run.is_multiple_of(2) { [a, b] } else { [c, d] })
    }

    fn narrow_value(&self, run: u32) -> u8 {
        self.load(NODE_HEADER + run / 4).to_le_bytes()[(run % 4) as usize]
    }

    fn reference(&self, at: u16) -> u32 {
        self.load(at.into())
    }
}
