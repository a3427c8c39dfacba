//! Routes as text, in iproute2's words. What is printed parses back (see [`super::grammar`]).

use std::fmt;

use super::{LinuxRoute, NeighbourEntry, NextHop, Route, RouteEntry, RouteState, protocol};
use crate::{config::cpus::format_cpus, netlink::event::Skip, prefix::Family};

impl Route {
    /// The prefix as iproute2 writes it. `default` only where the words after it tell its family.
    pub fn destination(&self) -> String {
        let via = self.next_hops.iter().find_map(|next_hop| next_hop.via);
        let implied = via.map_or(Family::Inet, Family::of);
        if self.prefix.is_default() && self.prefix.family() == implied {
            "default".to_owned()
        } else if self.prefix.is_host() {
            self.prefix.address().to_string()
        } else {
            self.prefix.to_string()
        }
    }

    fn write_prefix(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.destination())?;
        match &self.cpus {
            Some(cpus) => write!(f, " cpu {}", format_cpus(cpus)),
            None => Ok(()),
        }
    }

    fn write_next_hop(&self, f: &mut fmt::Formatter<'_>, next_hop: &NextHop) -> fmt::Result {
        if let Some(via) = next_hop.via {
            f.write_str(" via ")?;
            if Family::of(via) != self.prefix.family() {
                write!(f, "{} ", Family::of(via).keyword())?;
            }
            write!(f, "{via}")?;
        }
        if let Some(dev) = &next_hop.dev {
            write!(f, " dev {dev}")?;
        }
        if next_hop.weight != 1 || self.next_hops.len() > 1 {
            write!(f, " weight {}", next_hop.weight)?;
        }
        Ok(())
    }
}

/// On one line.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_prefix(f)?;
        for next_hop in &*self.next_hops {
            if self.next_hops.len() > 1 {
                f.write_str(" nexthop")?;
            }
            self.write_next_hop(f, next_hop)?;
        }
        Ok(())
    }
}

impl RouteEntry {
    /// Whether packets are forwarded by every next hop, or will be as soon as their destination is
    /// resolved.
    pub fn forwards(&self) -> bool {
        let is_left = self.linux.as_ref().is_some_and(|linux| linux.skip.is_some());
        !is_left && self.states.iter().all(RouteState::forwards)
    }

    /// The lines of `route show`; those of several next hops as iproute2 has them, one each. States
    /// are comments, and so is what `others`, entries of the same prefix, have: `route load` reads
    /// these lines.
    pub fn lines<'a>(&'a self, others: &'a [Self]) -> impl fmt::Display + 'a {
        Lines { entry: self, others }
    }
}

impl fmt::Display for RouteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines(&[]).fmt(f)
    }
}

struct Lines<'a> {
    entry: &'a RouteEntry,
    others: &'a [RouteEntry],
}

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RouteEntry { route, states, linux } = self.entry;
        let comment = |state: Option<&RouteState>| {
            state.filter(|state| !state.forwards()).map(ToString::to_string)
        };
        let other = |other: &RouteEntry| {
            let cpus = other.route.cpus.as_deref().map(format_cpus).unwrap_or_default();
            format!("cpu {cpus}: {}", describe(&other.route.next_hops))
        };
        let others = self.others.iter().map(other);
        let remark = linux.as_ref().and_then(LinuxRoute::remark);
        let others = remark.map(str::to_owned).into_iter().chain(others);
        if let Some(kind) = linux.as_ref().and_then(LinuxRoute::kind) {
            write!(f, "{kind} ")?;
        }
        route.write_prefix(f)?;
        if let [next_hop] = &route.next_hops[..] {
            route.write_next_hop(f, next_hop)?;
            write_origin(f, linux.as_ref())?;
            // Why it is left to Linux says more than what its next hop does.
            let state = states.first().filter(|_| remark.is_none());
            return write_comments(f, comment(state).into_iter().chain(others));
        }
        write_origin(f, linux.as_ref())?;
        write_comments(f, others)?;
        for (number, next_hop) in route.next_hops.iter().enumerate() {
            f.write_str("\n\tnexthop")?;
            route.write_next_hop(f, next_hop)?;
            let state = states.get(number).filter(|_| remark.is_none());
            write_comments(f, comment(state).into_iter())?;
        }
        Ok(())
    }
}

impl LinuxRoute {
    /// Why packets do not go by it in XDP.
    fn remark(&self) -> Option<&'static str> {
        if self.shadowed {
            return Some("another route of this prefix comes first");
        }
        self.skip.map(Skip::sentence)
    }

    /// Its type, where it is not the usual one.
    fn kind(&self) -> Option<&'static str> {
        let kinds = [Skip::Blackhole, Skip::Unreachable, Skip::Prohibit, Skip::Throw];
        self.skip.filter(|skip| kinds.contains(skip) && self.nhid.is_none()).map(Skip::label)
    }
}

/// Whose route it is, and its rank among those of its prefix.
fn write_origin(f: &mut fmt::Formatter<'_>, linux: Option<&LinuxRoute>) -> fmt::Result {
    let Some(LinuxRoute { protocol, metric, nhid, .. }) = linux else {
        return write!(f, " proto {}", protocol::XDP);
    };
    if let Some(id) = nhid {
        write!(f, " nhid {id}")?;
    }
    write!(f, " proto {}", protocol::name(*protocol))?;
    if *metric == 0 { Ok(()) } else { write!(f, " metric {metric}") }
}

fn write_comments(
    f: &mut fmt::Formatter<'_>,
    comments: impl Iterator<Item = String>,
) -> fmt::Result {
    for (number, comment) in comments.enumerate() {
        write!(f, "{}{comment}", if number == 0 { "  # " } else { "; " })?;
    }
    Ok(())
}

/// Next hops for a sentence.
pub fn describe(next_hops: &[NextHop]) -> String {
    let one = |NextHop { via, dev, weight }: &NextHop| {
        let via = via.map(|via| format!("via {via}"));
        let dev = dev.as_ref().map(|dev| format!("dev {dev}"));
        let weight = (*weight != 1).then(|| format!("weight {weight}"));
        [via, dev, weight].into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    next_hops.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl RouteState {
    /// Whether packets are forwarded, or will be as soon as their destination is resolved.
    pub fn forwards(&self) -> bool {
        matches!(self, Self::Forwarding { .. } | Self::Connected)
    }
}

impl fmt::Display for RouteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forwarding { .. } => f.write_str("forwarding"),
            Self::Connected => f.write_str("connected"),
            Self::Pending { on } => write!(f, "pending: {on}"),
            Self::Unusable { reason } => write!(f, "unusable: {reason}"),
        }
    }
}

impl fmt::Display for NeighbourEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} dev {} ", self.address, self.dev)?;
        if let Some(mac) = &self.mac {
            write!(f, "lladdr {mac} ")?;
        }
        write!(f, "{} routes {}", self.nud, self.routes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::testing::neighbour;

    fn route(prefix: &str, via: Option<&str>, dev: Option<&str>) -> Route {
        let next_hop = NextHop {
            via: via.map(|via| via.parse().unwrap()),
            dev: dev.map(std::borrow::ToOwned::to_owned),
            weight: 1,
        };
        Route { prefix: prefix.parse().unwrap(), next_hops: [next_hop].into(), cpus: None }
    }

    #[test]
    fn routes_read_as_iproute2_writes_them() {
        for (prefix, via, dev, line) in [
            (
                "198.18.2.0/24",
                Some("198.18.1.2"),
                Some("eth1"),
                "198.18.2.0/24 via 198.18.1.2 dev eth1",
            ),
            ("198.18.2.0/24", Some("2001:db8::1"), None, "198.18.2.0/24 via inet6 2001:db8::1"),
            ("198.18.2.7/32", None, Some("eth1"), "198.18.2.7 dev eth1"),
            ("2001:db8::7/128", None, Some("eth1"), "2001:db8::7 dev eth1"),
            ("0.0.0.0/0", Some("198.18.1.2"), None, "default via 198.18.1.2"),
            ("::/0", Some("2001:db8::1"), None, "default via 2001:db8::1"),
            ("0.0.0.0/0", None, Some("eth1"), "default dev eth1"),
            // Without its length nothing would tell the family.
            ("::/0", None, Some("eth1"), "::/0 dev eth1"),
            ("0.0.0.0/0", Some("2001:db8::1"), None, "0.0.0.0/0 via inet6 2001:db8::1"),
        ] {
            assert_eq!(route(prefix, via, dev).to_string(), line);
        }
    }

    #[test]
    fn an_entry_says_what_it_waits_for() {
        let route = route("198.18.2.0/24", Some("198.18.1.2"), Some("eth1"));
        for (state, end) in [
            (RouteState::Forwarding { mac: "02:00:00:00:00:01".to_owned() }, ""),
            (RouteState::Connected, ""),
            (RouteState::Pending { on: "neighbour".to_owned() }, "  # pending: neighbour"),
            (
                RouteState::Unusable { reason: "egress_down".to_owned() },
                "  # unusable: egress_down",
            ),
        ] {
            let line =
                RouteEntry { route: route.clone(), states: vec![state], linux: None }.to_string();
            assert_eq!(line, format!("198.18.2.0/24 via 198.18.1.2 dev eth1 proto xdp{end}"));
        }
    }

    #[test]
    fn several_next_hops_have_a_line_each_and_cpus_a_remark() {
        let mut several = route("0.0.0.0/0", Some("198.18.1.2"), Some("eth1"));
        let second =
            NextHop { dev: Some("eth2".to_owned()), weight: 3, ..several.next_hops[0].clone() };
        several.next_hops = [several.next_hops[0].clone(), second.clone()].into();
        let forwarding = RouteState::Forwarding { mac: "02:00:00:00:00:01".to_owned() };
        let pending = RouteState::Pending { on: "neighbour".to_owned() };
        let states = vec![forwarding, pending.clone()];
        let entry = RouteEntry { route: several.clone(), states, linux: None };
        assert_eq!(
            entry.to_string(),
            "default proto xdp\n\tnexthop via 198.18.1.2 dev eth1 weight 1\n\tnexthop via 198.18.1.2 dev eth2 weight 3  # pending: neighbour"
        );
        assert_eq!(
            several.to_string(),
            "default nexthop via 198.18.1.2 dev eth1 weight 1 nexthop via 198.18.1.2 dev eth2 weight 3"
        );

        let one = route("198.18.2.0/24", Some("198.18.1.2"), Some("eth1"));
        let one = RouteEntry { route: one, states: vec![pending.clone()], linux: None };
        let own = |cpus: &[u32], next_hops: &[NextHop]| RouteEntry {
            route: Route {
                next_hops: next_hops.into(),
                cpus: Some(cpus.to_vec()),
                ..one.route.clone()
            },
            states: vec![pending.clone(); next_hops.len()],
            linux: None,
        };
        let others = [own(&[0, 1], &[second]), own(&[5], &several.next_hops)];
        assert_eq!(
            one.lines(&others).to_string(),
            "198.18.2.0/24 via 198.18.1.2 dev eth1 proto xdp  # pending: neighbour; cpu 0-1: via 198.18.1.2 dev eth2 weight 3; cpu 5: via 198.18.1.2 dev eth1, via 198.18.1.2 dev eth2 weight 3"
        );
        assert_eq!(
            others[0].to_string(),
            "198.18.2.0/24 cpu 0-1 via 198.18.1.2 dev eth2 weight 3 proto xdp  # pending: neighbour"
        );
        assert!(others[1].to_string().starts_with("198.18.2.0/24 cpu 5 proto xdp\n\tnexthop via"));
    }

    #[test]
    fn a_neighbour_without_an_address_has_no_lladdr() {
        let mut entry = neighbour();
        assert_eq!(
            entry.to_string(),
            "198.18.1.2 dev eth1 lladdr 02:00:00:00:00:01 REACHABLE routes 2"
        );
        entry.mac = None;
        entry.nud = "INCOMPLETE".to_owned();
        assert_eq!(entry.to_string(), "198.18.1.2 dev eth1 INCOMPLETE routes 2");
    }
}
