//! Which CPU takes a flow: a symmetric hash, so that both directions meet on one CPU.

use crate::wire::Ports;

/// The two ends of a flow, without their order and without their ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends(u64);

// Odd constants with well spread bits (the fractional parts of the golden ratio and of √3, √5).
const MIX: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b];

impl Ends {
    #[inline(always)]
    pub const fn of4(source: [u8; 4], destination: [u8; 4]) -> Self {
        let (source, destination) = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
        Self::of(source as u64, destination as u64)
    }

    #[inline(always)]
    pub const fn of6(source: [u8; 16], destination: [u8; 16]) -> Self {
        Self::of(fold(source), fold(destination))
    }

    /// Each end is mixed before the two are added: sums and differences of addresses as they are
    /// would be equal for whole sets of flows.
    #[inline(always)]
    const fn of(a: u64, b: u64) -> Self {
        Self(mix(a).wrapping_add(mix(b)))
    }

    /// The flow's hash: all 32 bits are mixed.
    #[inline(always)]
    pub fn hash(self, ports: Option<&Ports>) -> u32 {
        let ports = ports.map_or(0, |ports| {
            let (a, b) = (u32::from(ports.source.get()), u32::from(ports.destination.get()));
            u64::from(((a ^ b) << 17) | (a + b))
        });
        let mut hash = self.0 ^ ports.wrapping_mul(MIX[2]);
        hash = (hash ^ (hash >> 32)).wrapping_mul(MIX[0]);
        hash = (hash ^ (hash >> 29)).wrapping_mul(MIX[1]);
        (hash >> 32) as u32
    }
}

#[inline(always)]
const fn mix(end: u64) -> u64 {
    let product = end.wrapping_mul(MIX[0]);
    product ^ (product >> 32)
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "each half in turn")]
const fn fold(address: [u8; 16]) -> u64 {
    let address = u128::from_be_bytes(address);
    let (network, host) = ((address >> 64) as u64, address as u64);
    network.wrapping_mul(MIX[1]).rotate_left(32) ^ host
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use proptest::prelude::*;

    use super::*;
    use crate::abi::STEERING_BUCKETS;

    fn ports(source: u16, destination: u16) -> Ports {
        Ports { source: source.into(), destination: destination.into() }
    }

    proptest! {
        #[test]
        fn both_directions_have_one_hash(a: [u8; 4], b: [u8; 4], p: u16, q: u16) {
            let there = Ends::of4(a, b).hash(Some(&ports(p, q)));
            prop_assert_eq!(there, Ends::of4(b, a).hash(Some(&ports(q, p))));
            prop_assert_eq!(Ends::of4(a, b).hash(None), Ends::of4(b, a).hash(None));
        }

        #[test]
        fn both_directions_have_one_hash_in_ipv6(a: [u8; 16], b: [u8; 16], p: u16, q: u16) {
            let there = Ends::of6(a, b).hash(Some(&ports(p, q)));
            prop_assert_eq!(there, Ends::of6(b, a).hash(Some(&ports(q, p))));
        }
    }

    /// Flows as they come in practice differ in few bits; each set must spread over the buckets.
    #[test]
    fn flows_of_one_kind_spread_evenly() {
        const FLOWS: u32 = 1 << 16;
        let four = |a: u32, b: u32, p: u16, q: u16| {
            Ends::of4(a.to_be_bytes(), b.to_be_bytes()).hash(Some(&ports(p, q)))
        };
        let six = |a: u128, b: u128| Ends::of6(a.to_be_bytes(), b.to_be_bytes()).hash(None);
        let (v4, v6) = (0xc612_0000, 0x2001_0db8 << 96);
        let kinds: [(&str, Vec<u32>); 6] = [
            ("by source port", (0..=u16::MAX).map(|p| four(v4, v4 + 1, p, 80)).collect()),
            ("by destination", (0..FLOWS).map(|i| four(v4, v4 + 7 + i, 9, 9)).collect()),
            ("in pairs", (0..FLOWS).map(|i| four(v4 + i, v4 + 65536 + i, 9, 9)).collect()),
            ("crosswise", (0..FLOWS).map(|i| four(v4 + i, v4 + 131_072 - i, 9, 9)).collect()),
            ("by host", (0..u128::from(FLOWS)).map(|i| six(v6, v6 | (1 << 80) | i)).collect()),
            ("by subnet", (0..u128::from(FLOWS)).map(|i| six(v6, v6 | (i << 64) | 1)).collect()),
        ];
        for (kind, hashes) in kinds {
            let mut buckets = vec![0u32; STEERING_BUCKETS as usize];
            for hash in hashes {
                buckets[(hash % STEERING_BUCKETS) as usize] += 1;
            }
            let even = FLOWS / STEERING_BUCKETS;
            let (least, most) = (buckets.iter().min().unwrap(), buckets.iter().max().unwrap());
            assert!(
                *least > even / 4 && *most < even * 2,
                "{kind}: {least} to {most}, even {even}"
            );
            let half: u32 = buckets.iter().step_by(2).sum();
            assert!(half.abs_diff(FLOWS / 2) < FLOWS / 20, "{kind}: {half} in every other bucket");
        }
    }
}
