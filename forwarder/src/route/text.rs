//! Routes as text, in iproute2's words. What is printed parses back (see [`super::grammar`]).

use std::fmt;

use super::{NeighbourEntry, NextHop, Route, RouteEntry, RouteState};
use crate::prefix::Family;

impl Route {
    /// The prefix as iproute2 writes it. `default` only where the words after it tell its family.
    pub fn destination(&self) -> String {
        let implied = self.next_hop.via.map_or(Family::Inet, Family::of);
        if self.prefix.is_default() && self.prefix.family() == implied {
            "default".to_owned()
        } else if self.prefix.is_host() {
            self.prefix.address().to_string()
        } else {
            self.prefix.to_string()
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.destination())?;
        let NextHop { via, dev } = &self.next_hop;
        if let Some(via) = via {
            f.write_str(" via ")?;
            if Family::of(*via) != self.prefix.family() {
                write!(f, "{} ", Family::of(*via).keyword())?;
            }
            write!(f, "{via}")?;
        }
        if let Some(dev) = dev {
            write!(f, " dev {dev}")?;
        }
        Ok(())
    }
}

/// A line of `route show`. The state is a comment, so that `route load` reads the line too.
impl fmt::Display for RouteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} proto xdp", self.route)?;
        if self.state.forwards() { Ok(()) } else { write!(f, "  # {}", self.state) }
    }
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
        };
        Route { prefix: prefix.parse().unwrap(), next_hop }
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
            let line = RouteEntry { route: route.clone(), state }.to_string();
            assert_eq!(line, format!("198.18.2.0/24 via 198.18.1.2 dev eth1 proto xdp{end}"));
        }
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
