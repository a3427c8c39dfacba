//! Our answer beside the kernel's: for whoever doubts that they are the same.

use std::net::IpAddr;

use forwarder_common::abi::{ROUTE_DISCARD, ROUTE_LOCAL, ROUTE_NONE, ROUTE_PUNT};
use serde::{Deserialize, Serialize};

use super::Routing;
use crate::{
    netlink::LinuxAnswer,
    paths::Hop,
    prefix::{Family, Prefix},
    reconcile::Table,
};

/// What a packet to an address finds in the tables that the programs read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It goes up: Linux decides, whatever it has.
    Left,
    /// By a route of ours alone, which Linux does not know.
    Ours,
    NoRoute,
    /// By these, ascending.
    Via(Vec<Hop>),
}

/// A packet that would go another way than Linux would send it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    pub destination: IpAddr,
    /// What the two say, in words.
    pub what: String,
}

impl<T: Table> Routing<T> {
    /// The prefixes of Linux's behind one, in their order.
    pub fn audited_after(&self, after: Option<Prefix>) -> impl Iterator<Item = Prefix> + '_ {
        let first = after.unwrap_or(Prefix::default_of(Family::Inet));
        self.rib.mirror().prefixes_from(first).filter(move |prefix| Some(*prefix) != after)
    }

    pub fn answer(&self, destination: IpAddr) -> Answer {
        let longest = self.rib.longest_match(destination);
        if longest.is_some_and(|(prefix, _)| self.rib.route(prefix).is_some()) {
            return Answer::Ours;
        }
        if self.is_punted(Family::of(destination)) {
            return Answer::Left;
        }
        match self.table.lookup(destination) {
            ROUTE_PUNT | ROUTE_DISCARD | ROUTE_LOCAL => Answer::Left,
            ROUTE_NONE => Answer::NoRoute,
            route => match self.installed.paths(route) {
                Some(paths) => {
                    Answer::Via(paths.members().iter().map(|member| member.hop).collect())
                }
                None => Answer::Left,
            },
        }
    }

    /// Whether a packet would go another way than Linux says.
    pub fn difference(&self, destination: IpAddr, linux: &LinuxAnswer) -> Option<Difference> {
        let ours = self.answer(destination);
        let theirs = match linux {
            LinuxAnswer::Local | LinuxAnswer::Nothing => None,
            LinuxAnswer::Via(next) => {
                let members = self.rib.mirror().members(next).unwrap_or_default();
                Some(members.into_iter().map(|member| member.hop).collect::<Vec<_>>())
            }
        };
        let what = match (ours, theirs) {
            (Answer::Left | Answer::Ours, _) | (Answer::NoRoute, None) => return None,
            (Answer::NoRoute, Some(theirs)) => {
                format!("Linux sends it {}, and XDP has no route", self.words(&theirs))
            }
            (Answer::Via(ours), None) => {
                format!("XDP sends it {}, and Linux nowhere", self.words(&ours))
            }
            (Answer::Via(ours), Some(mut theirs)) => {
                // Where a route is connected the destination is the neighbour.
                for hop in &mut theirs {
                    hop.via = hop
                        .via
                        .or(ours.iter().find_map(|it| it.via.filter(|it| *it == destination)));
                }
                if ours == theirs {
                    return None;
                }
                format!("XDP sends it {}, and Linux {}", self.words(&ours), self.words(&theirs))
            }
        };
        Some(Difference { destination, what })
    }

    fn words(&self, hops: &[Hop]) -> String {
        let one = |hop: &Hop| {
            let via = hop.via.map_or_else(String::new, |via| format!("via {via} "));
            format!("{via}dev {}", self.name(hop.ifindex))
        };
        if hops.is_empty() {
            return "nowhere".to_owned();
        }
        hops.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// The addresses that tell whether a prefix is right: its first and its last, and those beside it.
/// None to which no packet is forwarded.
pub fn edges(prefix: Prefix) -> impl Iterator<Item = IpAddr> {
    let (first, last) = (prefix.address(), prefix.last());
    let all = [before(first), Some(first), Some(last), after(last)];
    all.into_iter().flatten().filter(is_forwarded)
}

fn is_forwarded(address: &IpAddr) -> bool {
    let is_special = match address {
        IpAddr::V4(it) => it.is_link_local() || it.is_broadcast() || it.octets()[0] == 0,
        IpAddr::V6(it) => it.is_unicast_link_local() || it.to_ipv4_mapped().is_some(),
    };
    !is_special && !address.is_multicast() && !address.is_loopback() && !address.is_unspecified()
}

fn before(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(it) => IpAddr::V4(it.to_bits().checked_sub(1)?.into()),
        IpAddr::V6(it) => IpAddr::V6(it.to_bits().checked_sub(1)?.into()),
    })
}

fn after(address: IpAddr) -> Option<IpAddr> {
    Some(match address {
        IpAddr::V4(it) => IpAddr::V4(it.to_bits().checked_add(1)?.into()),
        IpAddr::V6(it) => IpAddr::V6(it.to_bits().checked_add(1)?.into()),
    })
}
