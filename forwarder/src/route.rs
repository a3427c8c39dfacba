//! A route as people write it, and as the daemon shows it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::prefix::Prefix;

pub mod grammar;
#[cfg(test)]
pub(crate) mod testing;
mod text;

/// Where a route's packets go next.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NextHop {
    /// The gateway; `None` means that destinations are neighbours themselves (connected). An IPv4
    /// route may have an IPv6 gateway (RFC 8950).
    pub via: Option<IpAddr>,
    /// Name of the egress interface. `None` only in a request: the daemon finds it from `via`.
    pub dev: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub prefix: Prefix,
    pub next_hop: NextHop,
}

/// What to do where the prefix is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    /// `route add`: refuse, as iproute2 does ("File exists").
    Refuse,
    /// `route replace`.
    Replace,
}

/// Which routes are meant. Empty means all; what is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// `Some(true)` IPv4 only, `Some(false)` IPv6 only.
    pub ipv4: Option<bool>,
    pub prefix: Option<PrefixMatch>,
    pub via: Option<IpAddr>,
    pub dev: Option<String>,
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
        let prefix = &route.prefix;
        self.ipv4.is_none_or(|ipv4| ipv4 == prefix.is_ipv4())
            && self.via.is_none_or(|via| route.next_hop.via == Some(via))
            && self.dev.as_ref().is_none_or(|dev| route.next_hop.dev.as_ref() == Some(dev))
            && self.prefix.is_none_or(|wanted| match wanted {
                PrefixMatch::Exact(wanted) => *prefix == wanted,
                PrefixMatch::Root(wanted) => wanted.covers(prefix),
                PrefixMatch::Match(wanted) => prefix.covers(&wanted),
            })
    }
}

/// A route as it is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteEntry {
    #[serde(flatten)]
    pub route: Route,
    #[serde(flatten)]
    pub state: RouteState,
}

/// Whether a route forwards, and if not, why.
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
