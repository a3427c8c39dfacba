//! Routes and neighbours in the keys of `ip -j`.

use std::net::IpAddr;

use serde::Serialize;

use crate::{
    prefix::Family,
    route::{NeighbourEntry, RouteEntry, RouteState},
};

#[derive(Debug, Serialize)]
pub(super) struct RouteJson<'a> {
    dst: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    /// iproute2's form of a gateway of the other family.
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<Via>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dev: Option<&'a str>,
    protocol: &'static str,
    flags: [&'static str; 0],
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lladdr: Option<&'a str>,
    /// What a pending route waits for, or why one cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Via {
    family: &'static str,
    host: IpAddr,
}

impl<'a> From<&'a RouteEntry> for RouteJson<'a> {
    fn from(entry: &'a RouteEntry) -> Self {
        let route = &entry.route;
        let via = route.next_hop.via;
        let foreign = via.filter(|via| Family::of(*via) != route.prefix.family());
        let (state, lladdr, reason) = match &entry.state {
            RouteState::Forwarding { mac } => ("forwarding", Some(&**mac), None),
            RouteState::Connected => ("connected", None, None),
            RouteState::Pending { on } => ("pending", None, Some(&**on)),
            RouteState::Unusable { reason } => ("unusable", None, Some(&**reason)),
        };
        Self {
            dst: route.destination(),
            gateway: via.filter(|_| foreign.is_none()),
            via: foreign.map(|host| Via { family: Family::of(host).keyword(), host }),
            dev: route.next_hop.dev.as_deref(),
            protocol: "xdp",
            flags: [],
            state,
            lladdr,
            reason,
        }
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

    fn entry(line: &str, state: RouteState) -> RouteEntry {
        let words: Vec<&str> = line.split_whitespace().collect();
        RouteEntry { route: grammar::route(&words, None).unwrap(), state }
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
            assert_eq!(to_value(RouteJson::from(&entry(line, state))).unwrap(), expected);
        }
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
