//! Tables out of a seed, with the lengths and the nesting of the Internet's: prefixes side by side
//! in blocks of very different density, more specific ones below them of which two in five lead
//! where their parent leads, and a few that are longer than anybody announces.

use std::collections::HashMap;

use forwarder::prefix::Family;
use forwarder_common::{abi::RouteId, testing::Random};

use super::{Net, Route, Table, skewed, wide};

/// A full table of the Internet and some reserve.
pub const FULL4: usize = 1_050_000;
pub const FULL6: usize = 252_000;

/// A length, and how often it comes.
type Lengths = &'static [(u8, u64)];

const SHORT4: Lengths =
    &[(8, 2), (9, 2), (10, 4), (11, 10), (12, 30), (13, 60), (14, 110), (15, 190)];
const SPARSE4: Lengths = &[(17, 1), (18, 1), (19, 1), (20, 1)];
const DENSE4: Lengths = &[(20, 8), (21, 12), (22, 25), (23, 15), (24, 40)];
const SPECIFIC4: Lengths =
    &[(17, 10), (18, 20), (19, 40), (20, 65), (21, 75), (22, 140), (23, 120), (24, 530)];

const BASE6: Lengths = &[
    (20, 2),
    (24, 3),
    (28, 20),
    (29, 100),
    (30, 40),
    (31, 40),
    (32, 640),
    (33, 30),
    (34, 30),
    (36, 60),
];
const SPECIFIC6: Lengths = &[
    (33, 25),
    (34, 25),
    (35, 20),
    (36, 70),
    (38, 20),
    (40, 120),
    (42, 25),
    (44, 90),
    (45, 15),
    (46, 30),
    (47, 40),
    (48, 400),
    (52, 20),
    (56, 40),
    (60, 10),
    (64, 40),
];
/// First 16 bits of what the registries give away.
const REGISTRIES6: [u16; 5] = [0x2400, 0x2600, 0x2800, 0x2a00, 0x2c00];

/// The table of a seed with this many routes.
pub fn table(family: Family, count: usize, seed: u64) -> Table {
    let mut draw = Draw { random: Random::new(seed), routes: HashMap::new(), parents: Vec::new() };
    let lengths = match family {
        Family::Inet => {
            draw.base4(count * 54 / 100);
            SPECIFIC4
        }
        Family::Inet6 => {
            draw.base6(count / 4);
            SPECIFIC6
        }
    };
    draw.finish(family, count, lengths, format!("synthetic, seed {seed}"))
}

/// A table with more specific routes added until there are so many, of its own lengths.
pub fn grown(table: &Table, count: usize, seed: u64) -> Table {
    let parents: Vec<Net> = table.routes.iter().map(|route| route.net).collect();
    let routes = table.routes.iter().map(|route| (route.net, route.id)).collect();
    let draw = Draw { random: Random::new(seed), routes, parents };
    let lengths: Vec<_> = (0..).zip(table.lengths()).map(|(len, of)| (len, of as u64)).collect();
    let source = format!("{}, grown, seed {seed}", table.source);
    draw.finish(table.family, count, &lengths, source)
}

struct Draw {
    random: Random,
    routes: HashMap<Net, RouteId>,
    /// Those that may have others below them, in the order in which they came.
    parents: Vec<Net>,
}

impl Draw {
    fn add(&mut self, net: Net, id: RouteId) {
        if self.routes.insert(net, id).is_none() {
            self.parents.push(net);
        }
    }

    /// Adds what is below other prefixes, and in the end what is longer than is announced.
    fn finish(
        mut self,
        family: Family,
        count: usize,
        lengths: &[(u8, u64)],
        source: String,
    ) -> Table {
        let (long, min, max) = match family {
            Family::Inet => (count * 3 / 1000, 25, 32),
            Family::Inet6 => (count * 8 / 1000, 64, 128),
        };
        self.specifics(count - long, |draw, parent| draw.below(parent, lengths));
        self.specifics(count, |draw, parent| draw.long(parent, min, max));
        let routes = self.routes.into_iter().map(|(net, id)| Route { net, id }).collect();
        Table::new(family, source, routes)
    }

    fn next_hop(&mut self) -> RouteId {
        skewed(self.random.number())
    }

    fn length(&mut self, lengths: &[(u8, u64)]) -> u8 {
        let sum = lengths.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(sum);
        for (len, weight) in lengths {
            if at < *weight {
                return *len;
            }
            at -= weight;
        }
        unreachable!("it is below the sum")
    }

    /// Blocks of 16 bits, each full of prefixes side by side, or of none.
    fn base4(&mut self, count: usize) {
        for _ in 0..count * 15 / 1000 {
            let len = self.length(SHORT4);
            let first = u128::from(1 + self.random.below(223)) << 120;
            let net = Net::new(first | wide(&mut self.random) >> 8, len);
            let id = self.next_hop();
            self.add(net, id);
        }
        let mut blocks: Vec<u32> = (0x0100..0xe000).filter(|block| block >> 8 != 127).collect();
        shuffle(&mut blocks, &mut self.random);
        for block in blocks {
            if self.routes.len() >= count {
                return;
            }
            let block = u128::from(block) << 112;
            match self.random.below(100) {
                0..15 => {}
                15..45 => {
                    let id = self.next_hop();
                    self.add(Net::new(block, 16), id);
                }
                45..85 => self.fill(block, SPARSE4),
                _ => self.fill(block, DENSE4),
            }
        }
    }

    /// One prefix behind the other, with gaps: none longer than 24 bits.
    fn fill(&mut self, block: u128, lengths: Lengths) {
        let mut at = 0;
        while at < 256_u32 {
            let aligned = if at == 0 { 16 } else { 24 - at.trailing_zeros() };
            let len = u32::from(self.length(lengths)).max(aligned);
            if self.random.below(100) >= 15 {
                let len = u8::try_from(len).expect("at most 24");
                let id = self.next_hop();
                self.add(Net::new(block | u128::from(at) << 104, len), id);
            }
            at += 1 << (24 - len);
        }
    }

    /// What registries give away: at every eighth /32 of half of their space.
    fn base6(&mut self, count: usize) {
        while self.routes.len() < count {
            let registry = u128::from(self.random.pick(&REGISTRIES6)) << 112;
            let slot = u128::from(self.random.below(2048) * 2 + self.random.below(8) / 7);
            let eighth = u128::from(self.random.below(32)) << 3;
            let len = self.length(BASE6);
            let net = Net::new(registry | slot << 104 | eighth << 96, len);
            let id = self.next_hop();
            self.add(net, id);
        }
    }

    /// More specific ones, until there are so many routes.
    fn specifics(&mut self, count: usize, below: impl Fn(&mut Self, Net) -> Option<Net>) {
        let parents = self.parents.len() as u64;
        // Some have thousands below them, most have none.
        let crowded = parents / 20 + 1;
        while self.routes.len() < count {
            let bound = self.random.pick(&[parents, crowded]);
            let parent = self.parents[at(self.random.below(bound))];
            let Some(net) = below(self, parent) else { continue };
            let inherits = self.random.below(5) < 2;
            let id = if inherits { self.routes[&parent] } else { self.next_hop() };
            self.routes.entry(net).or_insert(id);
        }
    }

    fn below(&mut self, parent: Net, lengths: &[(u8, u64)]) -> Option<Net> {
        let len = self.length(lengths);
        if len <= parent.len {
            return None;
        }
        // Networks are numbered from zero up, or at will.
        let span = u32::from(len - parent.len).min(60);
        let number = self.random.below(1 << span);
        let number = if self.random.below(2) == 0 { number % 64 } else { number };
        Some(Net::new(parent.bits | u128::from(number) << (128 - len), len))
    }

    fn long(&mut self, parent: Net, min: u8, max: u8) -> Option<Net> {
        let len = min + u8::try_from(self.random.below(u64::from(max - min) + 1)).ok()?;
        (len > parent.len).then(|| Net::new(parent.pick(&mut self.random), len))
    }
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, at(random.below(last as u64 + 1)));
    }
}

fn at(number: u64) -> usize {
    usize::try_from(number).expect("an index")
}

#[cfg(test)]
mod tests {
    use forwarder_common::abi::ROUTE_IDS_FIRST;

    use super::{super::bits_of, *};

    #[test]
    fn a_table_has_the_size_and_the_shape_that_it_should() {
        for (family, most, share) in [(Family::Inet, 24, 40..60), (Family::Inet6, 48, 22..38)] {
            let count = 50_000;
            let table = table(family, count, 1);
            assert_eq!(table.routes.len(), count);
            let lengths = table.lengths();
            assert!(share.contains(&(lengths[most] * 100 / count)), "{:?}", &lengths[..=128]);
            let long = usize::from(bits_of(family)) / 4 * 3 + 1;
            assert!(lengths[long..].iter().sum::<usize>() > 50);
            let transits =
                table.routes.iter().filter(|route| route.id < ROUTE_IDS_FIRST + 4).count();
            assert!((45..60).contains(&(transits * 100 / count)), "{transits}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_table_everywhere() {
        let sum = |seed| {
            let table = table(Family::Inet, 2000, seed);
            table.routes.iter().fold(0_u128, |sum, route| {
                sum.wrapping_mul(31).wrapping_add(route.net.bits ^ u128::from(route.id))
            })
        };
        assert_eq!(sum(1), sum(1));
        assert_ne!(sum(1), sum(2));
    }
}
