//! Which CPU takes a flow, and which next hop of several: a symmetric hash, so that both directions
//! meet on one CPU.

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

    /// The flow's hash: all 32 bits are mixed. Ports come with the protocol that they are of.
    #[inline(always)]
    pub fn hash(self, ports: Option<(u8, &Ports)>, seed: u64) -> u32 {
        let ports = ports.map_or(0, |(protocol, ports)| {
            let (a, b) = (u64::from(ports.source.get()), u64::from(ports.destination.get()));
            (u64::from(protocol) << 40) | ((a ^ b) << 17) | (a + b)
        });
        let mut hash = self.0 ^ ports.wrapping_mul(MIX[2]) ^ seed;
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
        fn both_directions_have_one_hash(a: [u8; 4], b: [u8; 4], p: u16, q: u16, seed: u64) {
            let there = Ends::of4(a, b).hash(Some((17, &ports(p, q))), seed);
            prop_assert_eq!(there, Ends::of4(b, a).hash(Some((17, &ports(q, p))), seed));
            prop_assert_eq!(Ends::of4(a, b).hash(None, seed), Ends::of4(b, a).hash(None, seed));
        }

        #[test]
        fn both_directions_have_one_hash_in_ipv6(a: [u8; 16], b: [u8; 16], p: u16, q: u16, seed: u64) {
            let there = Ends::of6(a, b).hash(Some((17, &ports(p, q))), seed);
            prop_assert_eq!(there, Ends::of6(b, a).hash(Some((17, &ports(q, p))), seed));
        }
    }

    /// Two routers in a row, steering and groups: whoever gets a part of the flows by some bits of
    /// one hash must spread them evenly by others, or by the same bits under another seed.
    #[test]
    fn bits_and_seeds_are_independent() {
        const FLOWS: u32 = 1 << 16;
        let hashes = |seed| {
            (0..FLOWS).map(move |flow| {
                let [a, b, high, low] = flow.to_be_bytes();
                let ports = ports(u16::from_be_bytes([high, low]), 443);
                Ends::of4([198, 18, a, b], [198, 19, 0, 1]).hash(Some((6, &ports)), seed)
            })
        };
        let part = |(first, second): (u32, u32), bits: fn(u32) -> u32| {
            (first % 4 == 0).then_some(bits(second) % 4)
        };
        let even = FLOWS / 16;
        for (what, pairs) in [
            ("one hash", hashes(1).zip(hashes(1)).collect::<Vec<_>>()),
            ("seeds that differ in one bit", hashes(1).zip(hashes(3)).collect()),
            ("seeds of two machines", hashes(0x1f83_d9ab_fb41_bd6b).zip(hashes(7)).collect()),
        ] {
            let mut ways: Vec<fn(u32) -> u32> = vec![|hash| hash >> 16, |hash| hash >> 20];
            if what != "one hash" {
                ways.push(|hash| hash);
            }
            for bits in ways {
                let mut counts = [0; 4];
                for quarter in pairs.iter().filter_map(|pair| part(*pair, bits)) {
                    counts[quarter as usize] += 1;
                }
                let fair = counts.iter().all(|count: &u32| count.abs_diff(even) < even / 8);
                assert!(fair, "{what}: {counts:?}, even {even}");
            }
        }
    }

    /// Flows as they come in practice differ in few bits; each set must spread over the buckets.
    #[test]
    fn flows_of_one_kind_spread_evenly() {
        const FLOWS: u32 = 1 << 16;
        let seed = 0x0123_4567_89ab_cdef;
        let four = |a: u32, b: u32, p: u16, q: u16| {
            Ends::of4(a.to_be_bytes(), b.to_be_bytes()).hash(Some((17, &ports(p, q))), seed)
        };
        let six = |a: u128, b: u128| Ends::of6(a.to_be_bytes(), b.to_be_bytes()).hash(None, seed);
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
