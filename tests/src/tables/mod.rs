//! Routing tables of any size, for tests and benchmarks: [`synthetic`] ones, the same for a seed
//! everywhere, and [`real`] ones, of the size and shape of the Internet's. [`trace`] draws
//! destinations for a table, and [`oracle`] knows the right answers.

pub mod linux;
pub mod oracle;
pub mod real;
pub mod synthetic;
pub mod trace;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use forwarder::prefix::{Family, Prefix};
use forwarder_common::{
    abi::{ROUTE_IDS_FIRST, RouteId},
    testing::Random,
};
use ipnet::IpNet;

/// Next hops of a table.
pub const NEXT_HOPS: u32 = 255;

/// The first `len` bits of an address; the others are zero. IPv4 has the first 32 of the 128.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Net {
    pub bits: u128,
    pub len: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub net: Net,
    pub id: RouteId,
}

/// Routes of one family, sorted, each prefix once.
#[derive(Clone, Debug)]
pub struct Table {
    pub family: Family,
    /// Where it comes from, as it is to be named beside every figure.
    pub source: String,
    pub routes: Vec<Route>,
}

impl Net {
    pub fn new(bits: u128, len: u8) -> Self {
        Self { bits: bits & mask(len), len }
    }

    pub fn prefix(self, family: Family) -> Prefix {
        let net = IpNet::new(address(family, self.bits), self.len).expect("a length of the family");
        Prefix::new(net).expect("no host bits")
    }

    /// The last address in it; bits beyond the family's are set, too.
    pub fn last(self) -> u128 {
        self.bits | !mask(self.len)
    }

    pub fn holds(self, bits: u128) -> bool {
        bits & mask(self.len) == self.bits
    }

    /// An address in it.
    pub fn pick(self, random: &mut Random) -> u128 {
        self.bits | (wide(random) & !mask(self.len))
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}/{}", self.bits, self.len)
    }
}

impl Table {
    fn new(family: Family, source: String, mut routes: Vec<Route>) -> Self {
        routes.sort_unstable_by_key(|route| route.net);
        routes.dedup_by_key(|route| route.net);
        Self { family, source, routes }
    }

    /// As the FIB takes them.
    pub fn prefixes(&self) -> Vec<(Prefix, RouteId)> {
        self.routes.iter().map(|route| (route.net.prefix(self.family), route.id)).collect()
    }

    /// Routes of each prefix length.
    pub fn lengths(&self) -> [usize; 129] {
        let mut lengths = [0; 129];
        for route in &self.routes {
            lengths[usize::from(route.net.len)] += 1;
        }
        lengths
    }
}

/// Bits of an address of a family.
pub fn bits_of(family: Family) -> u8 {
    match family {
        Family::Inet => 32,
        Family::Inet6 => 128,
    }
}

pub fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::Inet => Ipv4Addr::from_bits(high32(bits)).into(),
        Family::Inet6 => Ipv6Addr::from_bits(bits).into(),
    }
}

/// An IPv4 address, out of its 128 bits.
pub fn high32(bits: u128) -> u32 {
    (bits >> 96) as u32
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

fn wide(random: &mut Random) -> u128 {
    u128::from(random.number()) << 64 | u128::from(random.number())
}

/// The route of a next hop: half of all take one of the first four, as most routes of a real
/// router lead to its transits.
fn skewed(number: u64) -> RouteId {
    let next_hops = if number & 1 == 0 { 4 } else { NEXT_HOPS.into() };
    ROUTE_IDS_FIRST + u32::try_from((number >> 1) % next_hops).expect("there are few")
}
