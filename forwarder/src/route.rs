//! A route as people write it, and as the daemon shows it.

use std::{net::IpAddr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    netlink::event::Skip,
    prefix::{Family, Prefix},
};

pub mod grammar;
pub mod protocol;
#[cfg(test)]
pub(crate) mod testing;
mod text;

pub use text::describe;

/// Next hops of one route, for one CPU.
pub const NEXT_HOPS_MAX: usize = 64;
/// As in iproute2.
pub const WEIGHT_MAX: u16 = 256;

/// Where a route's packets go next.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextHop {
    /// The gateway; `None` means that destinations are neighbours themselves (connected). An IPv4
    /// route may have an IPv6 gateway (RFC 8950).
    pub via: Option<IpAddr>,
    /// Name of the egress interface. `None` only in a request: the daemon finds it from `via`.
    pub dev: Option<String>,
    /// From 1 to [`WEIGHT_MAX`]: how many flows it gets in comparison with the others.
    #[serde(default = "weight_one", skip_serializing_if = "is_weight_one")]
    pub weight: u16,
}

fn weight_one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_weight_one(weight: &u16) -> bool {
    *weight == 1
}

/// A prefix with next hops: of all CPUs, or of those that have their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub prefix: Prefix,
    /// At least one. Many routes share them.
    pub next_hops: Arc<[NextHop]>,
    /// `Some`: these CPUs, ascending, have these next hops, whatever the others have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u32>>,
}

impl Route {
    /// Its size, as messages count it.
    pub fn items(&self) -> usize {
        // A list of CPUs may be as long as a few next hops.
        self.next_hops.len() + self.cpus.as_ref().map_or(0, |cpus| cpus.len().div_ceil(16))
    }
}

/// What to do where the prefix is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// `route add`: refuse, as iproute2 does ("File exists").
    Refuse,
    /// `route replace`.
    Replace,
    /// `route append`: add to the next hops that are there; refuse where they are there already.
    Append,
    /// `route load --flush`: whatever is there goes, for every packet at one instant.
    Flush,
}

/// Which routes are meant. Empty means all; what is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// `Some(true)` IPv4 only, `Some(false)` IPv6 only.
    pub ipv4: Option<bool>,
    pub prefix: Option<PrefixMatch>,
    pub via: Option<IpAddr>,
    pub dev: Option<String>,
    /// Those of Linux's that are not forwarded in XDP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// In `route del` alone: the next hops that these CPUs have of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u32>>,
}

/// iproute2's `exact`, `root` and `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixMatch {
    Exact(Prefix),
    /// This prefix and all below it.
    Root(Prefix),
    /// This prefix and all above it.
    Match(Prefix),
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn matches(&self, route: &Route) -> bool {
        let mut next_hops = route.next_hops.iter();
        self.matches_prefix(&route.prefix)
            && (!self.asks_for_next_hop()
                || next_hops.any(|it| self.matches_next_hop(it.via, it.dev.as_deref())))
    }

    pub fn matches_prefix(&self, prefix: &Prefix) -> bool {
        self.ipv4.is_none_or(|ipv4| ipv4 == prefix.is_ipv4())
            && self.prefix.is_none_or(|wanted| match wanted {
                PrefixMatch::Exact(wanted) => *prefix == wanted,
                PrefixMatch::Root(wanted) => wanted.covers(prefix),
                PrefixMatch::Match(wanted) => prefix.covers(&wanted),
            })
    }

    /// The first prefix that may match.
    pub fn first_prefix(&self) -> Option<Prefix> {
        match self.prefix {
            Some(PrefixMatch::Exact(prefix) | PrefixMatch::Root(prefix)) => Some(prefix),
            _ if self.ipv4 == Some(false) => Some(Prefix::default_of(Family::Inet6)),
            _ => None,
        }
    }

    /// Whether neither this prefix nor one behind it matches.
    pub fn ends_before(&self, prefix: &Prefix) -> bool {
        match self.prefix {
            Some(PrefixMatch::Exact(wanted) | PrefixMatch::Match(wanted)) => *prefix > wanted,
            Some(PrefixMatch::Root(wanted)) => *prefix > wanted && !wanted.covers(prefix),
            None => self.ipv4 == Some(true) && !prefix.is_ipv4(),
        }
    }

    pub fn matches_next_hop(&self, via: Option<IpAddr>, dev: Option<&str>) -> bool {
        self.via.is_none_or(|wanted| via == Some(wanted))
            && self.dev.as_deref().is_none_or(|wanted| dev == Some(wanted))
    }

    /// Whether it says anything of next hops.
    pub fn asks_for_next_hop(&self) -> bool {
        self.via.is_some() || self.dev.is_some()
    }
}

/// A route as it is installed. A prefix has one for the CPUs without next hops of their own, and
/// one for each list of next hops that others have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteEntry {
    #[serde(flatten)]
    pub route: Route,
    /// Of each next hop.
    pub states: Vec<RouteState>,
    /// `Some`: Linux has it, and we follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxRoute>,
}

/// What Linux says of a route of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinuxRoute {
    /// Who made it: `RTPROT_*`.
    pub protocol: u8,
    /// The lowest of a prefix counts.
    pub metric: u32,
    /// Id of the nexthop object that it leads over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nhid: Option<u32>,
    /// Why its packets are left to Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip: Option<Skip>,
    /// Another route of the prefix comes before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
}

/// Whether a next hop forwards, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RouteState {
    /// In XDP, with this MAC address as next hop ("02:00:00:00:00:01").
    Forwarding { mac: String },
    /// Connected: each destination is a neighbour of its own, forwarded as soon as it is resolved.
    Connected,
    /// Waits for what `on` says, for example "neighbour"; shown as `pending: neighbour`.
    Pending { on: String },
    /// Cannot forward, for this reason ("neighbour_failed", "egress_down").
    Unusable { reason: String },
}

/// A next hop's neighbour entry, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourEntry {
    pub address: IpAddr,
    pub dev: String,
    pub mac: Option<String>,
    /// iproute2's word: "REACHABLE", "STALE", "INCOMPLETE", "FAILED", …, "NONE" where there is none.
    pub nud: String,
    /// Routes that lead over it.
    pub routes: u64,
}
