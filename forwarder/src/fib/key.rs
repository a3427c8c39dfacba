//! Prefixes as the FIB sees them: bits from the left, and where in a root they lie.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use forwarder_common::fib::{
    ROOT4_AT, ROOT6_AT, SLOT_BITS4, SLOTS4, SLOTS6, SLOTS6_GLOBAL, STRIDE, slot6,
};
use ipnet::IpNet;

use crate::prefix::{Family, Prefix};

/// The first `len` bits of an address; the others are zero. IPv4 has the first 32 of the 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) bits: u128,
    pub(super) len: u8,
}

impl Key {
    pub(super) fn of(prefix: Prefix) -> Self {
        let bits = match prefix.address() {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        Self { bits, len: prefix.len() }
    }

    pub(super) fn prefix(self, family: Family) -> Option<Prefix> {
        let address = match family {
            Family::Inet => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(self.bits >> 96).ok()?)),
            Family::Inet6 => IpAddr::V6(Ipv6Addr::from_bits(self.bits)),
        };
        Prefix::new(IpNet::new(address, self.len).ok()?).ok()
    }

    /// The shorter prefix that holds this one.
    pub(super) fn shortened(self, len: u8) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Self { bits: self.bits & mask, len }
    }

    /// The last address in it.
    pub(super) fn last_bits(self) -> u128 {
        self.bits | u128::MAX.checked_shr(self.len.into()).unwrap_or(0)
    }

    /// Which value of a node it lies in, whose prefix has `depth` bits.
    pub(super) fn value(self, depth: u8) -> u8 {
        ((self.bits << depth) >> (128 - STRIDE)).to_le_bytes()[0]
    }
}

/// The length of a prefix that an IPv4 slot stands for.
#[expect(clippy::cast_possible_truncation, reason = "it is 18")]
const SLOT_LEN4: u8 = SLOT_BITS4 as u8;

/// How a family's root is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root(pub(super) Family);

impl Root {
    pub(super) fn slots(self) -> u32 {
        match self.0 {
            Family::Inet => SLOTS4,
            Family::Inet6 => SLOTS6,
        }
    }

    /// Where the first or the second root starts.
    pub(super) fn at(self, active: u32) -> u32 {
        match self.0 {
            Family::Inet => ROOT4_AT + active * SLOTS4,
            Family::Inet6 => ROOT6_AT + active * SLOTS6,
        }
    }

    /// The slot of an address, and how many of its bits that uses.
    pub(super) fn slot(self, bits: u128) -> (u32, u8) {
        let high = (bits >> 64) as u64;
        match self.0 {
            Family::Inet => ((high >> (64 - SLOT_BITS4)) as u32, SLOT_LEN4),
            Family::Inet6 => {
                let (slot, used) = slot6(high);
                (slot, if used == 24 { 24 } else { 16 })
            }
        }
    }

    /// The bits that a slot stands for.
    pub(super) fn key_of(self, slot: u32) -> Key {
        let slot = u128::from(slot);
        match self.0 {
            Family::Inet => Key { bits: slot << (128 - SLOT_BITS4), len: SLOT_LEN4 },
            Family::Inet6 if slot < u128::from(SLOTS6_GLOBAL) => {
                Key { bits: (1 << 125) | (slot << 104), len: 24 }
            }
            Family::Inet6 => Key { bits: (slot - u128::from(SLOTS6_GLOBAL)) << 112, len: 16 },
        }
    }

    /// Whether this prefix ends in the root, and not in a node.
    pub(super) fn holds(self, key: Key) -> bool {
        key.len <= self.slot(key.bits).1
    }

    /// The slots of a prefix that ends in the root: of 2000::/3, and of all else.
    #[expect(clippy::cast_possible_truncation, reason = "slots are counted in 32 bits")]
    pub(super) fn ranges(self, key: Key) -> [Range<u32>; 2] {
        let by_bits = |bits: u32, from: u32| {
            let first = (key.bits >> (128 - bits)) as u32;
            let last = (key.last_bits() >> (128 - bits)) as u32;
            from + first..from + last + 1
        };
        match self.0 {
            Family::Inet => [by_bits(SLOT_BITS4, 0), 0..0],
            Family::Inet6 => {
                let first = u128::from(1_u8) << 125;
                let last = first | (first - 1);
                let (from, to) = (key.bits.max(first), key.last_bits().min(last));
                if from > to {
                    return [0..0, by_bits(16, SLOTS6_GLOBAL)];
                }
                let global = self.slot(from).0..self.slot(to).0 + 1;
                // Below 2000::/3 nobody reads the slots by 16 bits.
                let all = if key.len <= 3 { by_bits(16, SLOTS6_GLOBAL) } else { 0..0 };
                [global, all]
            }
        }
    }
}
