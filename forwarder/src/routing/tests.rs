use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use forwarder_common::abi::{ADJACENCY_FRAGS, Adjacency, ROUTE_LOCAL, RouteId, RouteWord};

use super::*;
use crate::netlink::event::{Address, Link, Neighbour};

mod following;
mod history;
mod large;
mod refusals;
mod room;

/// The maps as collections. A lookup goes the way of the programs.
#[derive(Debug, Default)]
struct FakeTable {
    fib: BTreeMap<Prefix, RouteId>,
    locals: BTreeSet<Prefix>,
    words: BTreeMap<RouteId, RouteWord>,
    adjacencies: BTreeMap<u32, Adjacency>,
    /// Writes that succeed before one fails; `None`: none fails.
    fails_after: Option<u32>,
    /// Prefixes that there is no room for.
    refused: BTreeSet<Prefix>,
    /// How many prefixes there is room for; `None`: for all.
    room: Option<usize>,
    graces: u32,
    writes: u32,
    writes_since_a_sign: u32,
    /// The longest time that no sign of life was given.
    silence: u32,
}

impl FakeTable {
    fn write(&mut self) -> io::Result<()> {
        self.writes += 1;
        self.writes_since_a_sign += 1;
        self.silence = self.silence.max(self.writes_since_a_sign);
        match &mut self.fails_after {
            Some(0) => {
                self.fails_after = None;
                Err(io::ErrorKind::StorageFull.into())
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn lookup(&self, address: IpAddr) -> Option<Result<Adjacency, Reason>> {
        let matching = self.fib.iter().filter(|(prefix, _)| prefix.contains(address));
        let (_, route) = matching.max_by_key(|(prefix, _)| prefix.len())?;
        Some(self.words[route].resolve().map(|index| self.adjacencies[&index]))
    }
}

impl Table for FakeTable {
    fn insert(&mut self, prefix: Prefix, route: RouteId) -> io::Result<()> {
        self.write()?;
        let is_new = !self.fib.contains_key(&prefix);
        let is_full = is_new && self.room.is_some_and(|room| self.fib.len() >= room);
        if is_full || self.refused.contains(&prefix) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        assert!(self.words.contains_key(&route), "a prefix leads to a route without a word");
        self.fib.insert(prefix, route);
        Ok(())
    }

    fn remove(&mut self, prefix: Prefix) -> io::Result<()> {
        self.write()?;
        assert!(self.fib.remove(&prefix).is_some(), "{prefix} was not there");
        Ok(())
    }

    fn set_local(&mut self, prefix: Prefix, is_local: bool) -> io::Result<()> {
        self.write()?;
        if is_local {
            self.locals.insert(prefix)
        } else {
            self.locals.remove(&prefix)
        };
        Ok(())
    }

    fn set_word(&mut self, route: RouteId, word: RouteWord) -> io::Result<()> {
        self.write()?;
        if let Ok(index) = word.resolve() {
            assert!(self.adjacencies.contains_key(&index), "a word leads to no adjacency");
        }
        self.words.insert(route, word);
        Ok(())
    }

    fn set_adjacency(&mut self, index: u32, adjacency: Adjacency) -> io::Result<()> {
        self.write()?;
        let in_use = self.words.values().any(|word| word.resolve() == Ok(index));
        assert!(!in_use, "an adjacency that a word leads to was changed");
        self.adjacencies.insert(index, adjacency);
        Ok(())
    }

    fn grace(&mut self) -> bool {
        self.graces += 1;
        true
    }

    fn show_life(&mut self) {
        self.writes_since_a_sign = 0;
    }
}

const ETH0: u32 = 2;
const ETH1: u32 = 1001;

fn link(ifindex: u32, name: &str) -> Link {
    Link {
        ifindex,
        name: name.to_owned(),
        mac: Some([2, 0, 0, 0, 0, ifindex.to_le_bytes()[0]]),
        mtu: 1500,
        up: true,
        carrier: true,
        controller: None,
        kind: None,
        xdp_programs: Vec::new(),
    }
}

fn neighbour(ifindex: u32, address: &str, state: NeighbourState) -> Neighbour {
    let mac = state.is_valid().then_some([2, 0, 0, 0, 9, 9]);
    Neighbour { ifindex, address: address.parse().unwrap(), mac, state }
}

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn route(to: &str, via: Option<&str>, dev: Option<&str>) -> Route {
    let via = via.map(|via| via.parse().unwrap());
    Route { prefix: prefix(to), next_hop: NextHop { via, dev: dev.map(str::to_owned) } }
}

fn address(ifindex: u32, subnet: &str) -> Address {
    Address { ifindex, address: subnet.parse().unwrap() }
}

fn routing_with(limits: Limits) -> Routing<FakeTable> {
    let abilities = |frags| Abilities { xmit: true, frags };
    let rib = Rib::new([(ETH0, abilities(false)), (ETH1, abilities(true))].into());
    let mut routing = Routing::new(rib, FakeTable::default(), limits).unwrap();
    let events = [
        Event::Links(vec![link(ETH0, "eth0"), link(ETH1, "eth1"), link(9, "eth9")]),
        Event::Addresses(vec![
            address(ETH0, "198.18.1.1/24"),
            address(ETH1, "198.18.2.1/24"),
            address(ETH1, "2001:db8:2::1/64"),
        ]),
        Event::Locals(vec![prefix("198.18.1.1"), prefix("198.18.2.1"), prefix("2001:db8:2::1")]),
        Event::Neighbours(Vec::new()),
    ];
    routing.apply(events).unwrap();
    routing
}

fn routing() -> Routing<FakeTable> {
    routing_with(Limits { routes4: 1000, routes6: 1000 })
}

fn add(routing: &mut Routing<FakeTable>, route: Route) -> Result<RouteEntry, Refusal> {
    routing.add(route, Existing::Refuse)
}

fn exact(text: &str) -> Selector {
    Selector { prefix: Some(PrefixMatch::Exact(prefix(text))), ..Selector::default() }
}

fn pending() -> RouteState {
    RouteState::Pending { on: "neighbour".to_owned() }
}
