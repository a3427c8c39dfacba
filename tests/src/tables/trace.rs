//! Destinations for a table.

use forwarder::prefix::Family;
use forwarder_common::testing::Random;

use super::{Net, Table, bits_of, mask, wide};

/// Destinations of a trace.
pub const LEN: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One destination.
    Hot,
    /// 64 of them, in no order.
    Flows64,
    /// Prefixes by Zipf's law (exponent 1), an address of each at random.
    Zipf,
    /// Addresses at random: of all in IPv4, near prefixes in IPv6.
    Uniform,
    /// Prefixes at random, an address of each at random.
    Prefixes,
    /// First and last addresses of prefixes, and their neighbours outside.
    Edges,
}

impl Kind {
    pub fn label(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Flows64 => "64 flows",
            Self::Zipf => "Zipf",
            Self::Uniform => "uniform addresses",
            Self::Prefixes => "uniform over prefixes",
            Self::Edges => "edges",
        }
    }
}

/// `len` destinations, as the first bits of 128.
pub fn trace(table: &Table, kind: Kind, len: usize, seed: u64) -> Vec<u128> {
    let mut draw = Draw { table, random: Random::new(seed) };
    match kind {
        Kind::Hot => vec![draw.usual(); len],
        Kind::Flows64 => {
            let flows: Vec<u128> = (0..64).map(|_| draw.usual()).collect();
            (0..len).map(|_| draw.random.pick(&flows)).collect()
        }
        Kind::Zipf => (0..len).map(|_| draw.zipf()).collect(),
        Kind::Uniform => (0..len).map(|_| draw.uniform()).collect(),
        Kind::Prefixes => (0..len).map(|_| draw.of_prefix()).collect(),
        Kind::Edges => (0..len).map(|_| draw.edge()).collect(),
    }
}

struct Draw<'a> {
    table: &'a Table,
    random: Random,
}

impl Draw<'_> {
    fn net(&mut self) -> Net {
        let at = self.random.below(self.table.routes.len() as u64);
        self.table.routes[usize::try_from(at).expect("an index")].net
    }

    fn pick(&mut self, net: Net) -> u128 {
        let bits = net.pick(&mut self.random);
        self.cut(bits)
    }

    fn of_prefix(&mut self) -> u128 {
        let net = self.net();
        self.pick(net)
    }

    /// Of a prefix of the length that is the most usual.
    fn usual(&mut self) -> u128 {
        let len = if self.table.family == Family::Inet { 24 } else { 48 };
        // A table of a few routes may have none.
        let net = (0..1000).map(|_| self.net()).find(|net| net.len == len);
        let net = net.unwrap_or_else(|| self.net());
        self.pick(net)
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank below 2^52"
    )]
    fn zipf(&mut self) -> u128 {
        let count = self.table.routes.len();
        let uniform = (self.random.number() >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = ((uniform * (count as f64).ln()).exp() as usize).min(count - 1);
        // Which prefixes are in demand has nothing to do with their order.
        let net = self.table.routes[rank.wrapping_mul(0x9e37_79b1) % count].net;
        self.pick(net)
    }

    fn uniform(&mut self) -> u128 {
        let bits = wide(&mut self.random);
        if self.table.family == Family::Inet {
            return self.cut(bits);
        }
        let len = 20 + u8::try_from(self.random.below(44)).expect("below 44");
        let near = self.net().bits;
        (near & mask(len)) | (bits & !mask(len))
    }

    fn edge(&mut self) -> u128 {
        let net = self.net();
        let one = 1 << (128 - bits_of(self.table.family));
        let edge = match self.random.below(4) {
            0 => net.bits.wrapping_sub(one),
            1 => net.bits,
            2 => net.last(),
            _ => net.last().wrapping_add(1),
        };
        self.cut(edge)
    }

    fn cut(&self, bits: u128) -> u128 {
        bits & mask(bits_of(self.table.family))
    }
}
