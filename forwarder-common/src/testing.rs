//! For tests of every crate: naive tables, and frames that reach every corner of the walk.

#![expect(clippy::missing_panics_doc, reason = "a test that misuses it is to panic")]

use std::{collections::BTreeMap, vec, vec::Vec};

use crate::{
    abi::{Adjacency, ROUTE_NONE, RouteId, RouteWord},
    lookup::{Steering, Tables},
};

/// The tables as plain collections; a lookup looks at every prefix.
#[derive(Clone, Debug, Default)]
pub struct NaiveTables {
    /// (address, prefix length) → route.
    pub routes4: BTreeMap<([u8; 4], u8), RouteId>,
    pub routes6: BTreeMap<([u8; 16], u8), RouteId>,
    pub locals4: Vec<([u8; 4], u8)>,
    pub words: BTreeMap<RouteId, RouteWord>,
    pub buckets: BTreeMap<u32, u32>,
    pub adjacencies: BTreeMap<u32, Adjacency>,
    pub hash_seed: u64,
    pub ports: Vec<u32>,
    pub lease_expired: bool,
}

impl Tables for NaiveTables {
    fn route4(&self, destination: [u8; 4]) -> RouteId {
        longest(&self.routes4, destination)
    }

    fn route6(&self, destination: [u8; 16]) -> RouteId {
        longest(&self.routes6, destination)
    }

    fn is_local4(&self, address: [u8; 4]) -> bool {
        self.locals4.iter().any(|(prefix, len)| in_prefix(address, *prefix, *len))
    }

    fn word(&self, route: RouteId) -> Option<RouteWord> {
        self.words.get(&route).copied()
    }

    fn bucket(&self, index: u32) -> Option<u32> {
        self.buckets.get(&index).copied()
    }

    fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    fn adjacency(&self, index: u32) -> Option<&Adjacency> {
        self.adjacencies.get(&index)
    }

    fn lease_holds(&self) -> bool {
        !self.lease_expired
    }

    fn redirect(&self, port: u32) -> bool {
        self.ports.contains(&port)
    }
}

fn longest<const N: usize>(
    routes: &BTreeMap<([u8; N], u8), RouteId>,
    destination: [u8; N],
) -> RouteId {
    let matching = routes.iter().filter(|((at, len), _)| in_prefix(destination, *at, *len));
    matching.max_by_key(|((_, len), _)| *len).map_or(ROUTE_NONE, |(_, route)| *route)
}

fn in_prefix<const N: usize>(address: [u8; N], prefix: [u8; N], len: u8) -> bool {
    (0..usize::from(len)).all(|bit| {
        let mask = 0x80 >> (bit % 8);
        address[bit / 8] & mask == prefix[bit / 8] & mask
    })
}

/// Sends every flow to one CPU, which has a queue or not.
pub struct SteerTo {
    pub cpu: u32,
    pub has_queue: bool,
}

impl Steering for SteerTo {
    fn worker(&self, hash: impl FnOnce() -> u32) -> Option<u32> {
        hash();
        Some(self.cpu)
    }

    fn steer(&self, _: u32) -> bool {
        self.has_queue
    }
}

/// The Internet checksum (RFC 1071) of whole 16-bit words, computed from scratch.
pub fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let mut sum: u32 = words.map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// An untagged frame: IPv4 with UDP ports 1000 and 2000 and `payload` bytes of 0xa5.
pub fn ipv4(to: [u8; 6], source: [u8; 4], destination: [u8; 4], ttl: u8, payload: u16) -> Vec<u8> {
    let len = 28 + payload;
    let mut frame = ethernet(to, 0x0800);
    frame.extend([0x45, 0]);
    frame.extend(len.to_be_bytes());
    frame.extend([0x12, 0x34, 0x40, 0, ttl, 17, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(udp(payload));
    finish_ipv4(&mut frame);
    frame
}

/// Likewise IPv6.
pub fn ipv6(
    to: [u8; 6],
    source: [u8; 16],
    destination: [u8; 16],
    hops: u8,
    payload: u16,
) -> Vec<u8> {
    let mut frame = ethernet(to, 0x86dd);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((8 + payload).to_be_bytes());
    frame.extend([17, hops]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(udp(payload));
    frame
}

/// Gives the IPv4 header of an untagged frame its checksum.
pub fn finish_ipv4(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn ethernet(to: [u8; 6], ether_type: u16) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend([2, 0, 0, 0, 0, 0xaa]);
    frame.extend(ether_type.to_be_bytes());
    frame
}

fn udp(payload: u16) -> Vec<u8> {
    let mut udp = vec![0x03, 0xe8, 0x07, 0xd0];
    udp.extend((8 + payload).to_be_bytes());
    udp.extend([0, 0]);
    udp.resize(udp.len() + usize::from(payload), 0xa5);
    udp
}

/// xorshift64*: a sequence that is the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

/// A frame that is forwarded by `tables`, of some flow, as often as not spoilt in one to three places.
///
/// `to` is the MAC address of the ingress; destinations are drawn from `destinations4` and `6`.
pub fn random_frame(
    random: &mut Random,
    to: [u8; 6],
    destinations4: &[[u8; 4]],
    destinations6: &[[u8; 16]],
) -> Vec<u8> {
    let ttl = random.pick(&[2, 3, 64, 128, 255]);
    let payload = random.pick(&[0, 1, 18, 46, 100, 1400, 1472]);
    let mut frame = if random.below(2) == 0 {
        let source = [198, 18, random.pick(&[1, 7]), random.pick(&[1, 9, 255])];
        ipv4(to, source, random.pick(destinations4), ttl, payload)
    } else {
        let mut source = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        source[15] = random.pick(&[1, 9, 255]);
        ipv6(to, source, random.pick(destinations6), ttl, payload)
    };
    let ipv4 = frame[12] == 0x08;
    let source_port = frame.len() - usize::from(payload) - 8;
    let port = random.number().to_le_bytes();
    frame[source_port..source_port + 2].copy_from_slice(&port[..2]);
    for _ in 0..random.below(4) {
        spoil(random, &mut frame, ipv4);
    }
    if ipv4 && frame.len() >= 34 && random.below(4) > 0 {
        finish_ipv4(&mut frame);
    }
    if random.below(8) == 0 {
        frame.resize(frame.len() + random.pick(&[1, 6, 64]), 0);
    }
    frame
}

fn spoil(random: &mut Random, frame: &mut Vec<u8>, ipv4: bool) {
    // Bytes of the headers, by what decides over them.
    let fields4: &[usize] = &[0, 5, 12, 13, 14, 16, 17, 20, 21, 22, 23, 24, 26, 27, 30, 31, 32, 33];
    let fields6: &[usize] = &[0, 5, 12, 13, 14, 18, 19, 20, 21, 22, 23, 32, 36, 38, 39, 40, 48, 53];
    match random.below(8) {
        0 => {
            let len = random.below(frame.len() as u64 + 1);
            frame.truncate(usize::try_from(len).unwrap());
        }
        1 => {
            let at = random.below(frame.len().max(1) as u64);
            if let Some(byte) = frame.get_mut(usize::try_from(at).unwrap()) {
                *byte = random.number().to_le_bytes()[0];
            }
        }
        _ => {
            let at = random.pick(if ipv4 { fields4 } else { fields6 });
            let value = random.pick(&[
                0, 1, 2, 6, 17, 0x44, 0x45, 0x46, 0x60, 0x7f, 0x80, 0xa9, 0xe0, 0xfe, 0xff,
            ]);
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
    }
}
