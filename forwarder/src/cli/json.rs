//! Routes and neighbours in the keys of `ip -j`.

use std::{borrow::Cow, net::IpAddr};

use serde::Serialize;

use crate::{
    netlink::event::Skip,
    prefix::Family,
    route::{
        NeighbourEntry, NextHop, RouteEntry, RouteState,
        protocol::{XDP, name},
    },
};

#[derive(Debug, Serialize)]
pub(super) struct RouteJson<'a> {
    dst: String,
    /// Not of iproute2: which CPUs have these next hops, where not all have.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<&'a [u32]>,
    /// Of the one next hop, where there are not several.
    #[serde(flatten)]
    next_hop: Option<NextHopJson<'a>>,
    protocol: Cow<'static, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nhid: Option<u32>,
    flags: [&'static str; 0],
    /// Not of iproute2, like all that follows: why its packets are left to Linux.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<&'static str>,
    /// Another route of the prefix comes before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shadowed: bool,
    #[serde(flatten)]
    state: Option<StateJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nexthops: Vec<MemberJson<'a>>,
    /// CPUs with next hops of their own, where these are not shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    own_cpus: Vec<u32>,
}

/// One of several.
#[derive(Debug, Serialize)]
struct MemberJson<'a> {
    #[serde(flatten)]
    next_hop: NextHopJson<'a>,
    flags: [&'static str; 0],
    #[serde(flatten)]
    state: StateJson<'a>,
}

#[derive(Debug, Serialize)]
struct NextHopJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    /// iproute2's form of a gateway of the other family.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<Via>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u16>,
}

#[derive(Debug, Serialize)]
struct StateJson<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lladdr: Option<&'a str>,
    /// What a pending one waits for, or why one cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Via {
    family: &'static str,
    host: IpAddr,
}

impl<'a> RouteJson<'a> {
    /// `others` are entries of the same prefix that are not shown.
    pub(super) fn new(entry: &'a RouteEntry, others: &[RouteEntry]) -> Self {
        let RouteEntry { route, states, linux } = entry;
        let family = route.prefix.family();
        let (mut one, mut nexthops) = (None, Vec::new());
        match (&route.next_hops[..], &states[..]) {
            ([next_hop], [state]) => {
                let weight = (next_hop.weight != 1).then_some(next_hop.weight);
                one = Some((NextHopJson::new(family, next_hop, weight), state.into()));
            }
            (several, states) => {
                nexthops.extend(several.iter().zip(states).map(|(it, state)| MemberJson {
                    next_hop: NextHopJson::new(family, it, Some(it.weight)),
                    flags: [],
                    state: state.into(),
                }));
            }
        }
        let (next_hop, state) = one.unzip();
        let mut own_cpus: Vec<u32> =
            others.iter().filter_map(|other| other.route.cpus.clone()).flatten().collect();
        own_cpus.sort_unstable();
        Self {
            dst: route.destination(),
            cpus: route.cpus.as_deref(),
            next_hop,
            protocol: linux.as_ref().map_or(XDP.into(), |linux| name(linux.protocol)),
            metric: linux.as_ref().map(|linux| linux.metric).filter(|metric| *metric != 0),
            nhid: linux.as_ref().and_then(|linux| linux.nhid),
            skipped: linux.as_ref().and_then(|linux| linux.skip).map(Skip::label),
            shadowed: linux.as_ref().is_some_and(|linux| linux.shadowed),
            flags: [],
            state,
            nexthops,
            own_cpus,
        }
    }
}

impl<'a> NextHopJson<'a> {
    fn new(family: Family, next_hop: &'a NextHop, weight: Option<u16>) -> Self {
        let foreign = next_hop.via.filter(|via| Family::of(*via) != family);
        Self {
            gateway: next_hop.via.filter(|_| foreign.is_none()),
            via: foreign.map(|host| Via { family: Family::of(host).keyword(), host }),
            dev: next_hop.dev.as_deref(),
            weight,
        }
    }
}

impl<'a> From<&'a RouteState> for StateJson<'a> {
    fn from(state: &'a RouteState) -> Self {
        let (state, lladdr, reason) = match state {
            RouteState::Forwarding { mac } => ("forwarding", Some(mac.as_str()), None),
            RouteState::Connected => ("connected", None, None),
            RouteState::Pending { on } => ("pending", None, Some(on.as_str())),
            RouteState::Unusable { reason } => ("unusable", None, Some(reason.as_str())),
        };
        Self { state, lladdr, reason }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct NeighbourJson<'a> {
    dst: IpAddr,
    dev: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lladdr: Option<&'a str>,
    state: [&'a str; 1],
    routes: u64,
}

impl<'a> From<&'a NeighbourEntry> for NeighbourJson<'a> {
    fn from(entry: &'a NeighbourEntry) -> Self {
        Self {
            dst: entry.address,
            dev: &entry.dev,
            lladdr: entry.mac.as_deref(),
            state: [&entry.nud],
            routes: entry.routes,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;
    use crate::route::{grammar, testing::neighbour};

    fn entry(line: &str, states: &[RouteState]) -> RouteEntry {
        let words: Vec<&str> = line.split_whitespace().collect();
        RouteEntry {
            route: grammar::route(&words, None).unwrap(),
            states: states.to_vec(),
            linux: None,
        }
    }

    #[test]
    fn routes_have_iproute2_s_keys() {
        let forwarding = RouteState::Forwarding { mac: "02:00:00:00:00:01".to_owned() };
        for (line, state, expected) in [
            (
                "198.18.2.0/24 via 198.18.1.2 dev eth1",
                forwarding,
                json!({
                    "dst": "198.18.2.0/24", "gateway": "198.18.1.2", "dev": "eth1",
                    "protocol": "xdp", "flags": [], "state": "forwarding",
                    "lladdr": "02:00:00:00:00:01"
                }),
            ),
            (
                "198.18.2.0/24 via inet6 2001:db8::1 dev eth1",
                RouteState::Pending { on: "neighbour".to_owned() },
                json!({
                    "dst": "198.18.2.0/24", "via": { "family": "inet6", "host": "2001:db8::1" },
                    "dev": "eth1", "protocol": "xdp", "flags": [], "state": "pending",
                    "reason": "neighbour"
                }),
            ),
            (
                "default via 2001:db8::1 dev eth1",
                RouteState::Unusable { reason: "egress_down".to_owned() },
                json!({
                    "dst": "default", "gateway": "2001:db8::1", "dev": "eth1", "protocol": "xdp",
                    "flags": [], "state": "unusable", "reason": "egress_down"
                }),
            ),
            (
                "198.18.2.7 dev eth1",
                RouteState::Connected,
                json!({
                    "dst": "198.18.2.7", "dev": "eth1", "protocol": "xdp", "flags": [],
                    "state": "connected"
                }),
            ),
        ] {
            assert_eq!(to_value(RouteJson::new(&entry(line, &[state]), &[])).unwrap(), expected);
        }
    }

    #[test]
    fn several_next_hops_are_a_list_as_in_iproute2() {
        let forwarding = RouteState::Forwarding { mac: "02:00:00:00:00:01".to_owned() };
        let failed = RouteState::Unusable { reason: "neighbour_failed".to_owned() };
        let line = "198.18.2.0/24 nexthop via 198.18.1.2 dev eth1 weight 2 nexthop via inet6 2001:db8::1 dev eth2";
        let several = entry(line, &[forwarding, failed]);
        let own = [
            entry("198.18.2.0/24 cpu 5 via 198.18.1.3 dev eth1", &[RouteState::Connected]),
            entry("198.18.2.0/24 cpu 0-1 via 198.18.1.4 dev eth1", &[RouteState::Connected]),
        ];
        assert_eq!(
            to_value(RouteJson::new(&several, &own)).unwrap(),
            json!({
                "dst": "198.18.2.0/24", "protocol": "xdp", "flags": [],
                "nexthops": [
                    {
                        "gateway": "198.18.1.2", "dev": "eth1", "weight": 2, "flags": [],
                        "state": "forwarding", "lladdr": "02:00:00:00:00:01"
                    },
                    {
                        "via": { "family": "inet6", "host": "2001:db8::1" }, "dev": "eth2",
                        "weight": 1, "flags": [], "state": "unusable", "reason": "neighbour_failed"
                    },
                ],
                "own_cpus": [0, 1, 5],
            })
        );
        assert_eq!(
            to_value(RouteJson::new(&own[1], &[])).unwrap(),
            json!({
                "dst": "198.18.2.0/24", "cpus": [0, 1], "gateway": "198.18.1.4", "dev": "eth1",
                "protocol": "xdp", "flags": [], "state": "connected"
            })
        );
    }

    #[test]
    fn neighbours_have_iproute2_s_keys() {
        assert_eq!(
            to_value(NeighbourJson::from(&neighbour())).unwrap(),
            json!({
                "dst": "198.18.1.2", "dev": "eth1", "lladdr": "02:00:00:00:00:01",
                "state": ["REACHABLE"], "routes": 2
            })
        );
    }
}
