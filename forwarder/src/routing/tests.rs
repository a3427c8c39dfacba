use std::net::IpAddr;

use forwarder_common::{
    abi::{ADJACENCY_FRAGS, Adjacency, ROUTE_LOCAL},
    verdict::Reason,
};

use self::table::FakeTable;
use super::*;
use crate::{
    netlink::event::{Address, Link, Neighbour, NeighbourState},
    paths::Hop,
    route::RouteState,
};

mod changed;
mod following;
mod history;
mod large;
mod mirrored;
mod per_cpu;
mod refusals;
mod room;
mod several;
mod table;

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
    let next_hop = NextHop { via, dev: dev.map(str::to_owned), weight: 1 };
    Route { prefix: prefix(to), next_hops: [next_hop].into(), cpus: None }
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

fn limits(routes4: u32, routes6: u32) -> Limits {
    Limits { routes4, routes6, sets: 100, cpus: vec![0, 1, 2, 5] }
}

fn routing() -> Routing<FakeTable> {
    routing_with(limits(1000, 1000))
}

fn add(routing: &mut Routing<FakeTable>, route: Route) -> Result<RouteEntry, Refusal> {
    routing.add(route, Existing::Refuse)
}

impl Routing<FakeTable> {
    /// All pages.
    fn show(&self, selector: &Selector) -> Vec<RouteEntry> {
        let mut page = self.page(selector, None);
        let mut entries = std::mem::take(&mut page.entries);
        while page.more_after.is_some() {
            page = self.page(selector, page.more_after);
            entries.append(&mut page.entries);
        }
        entries
    }
}

fn exact(text: &str) -> Selector {
    Selector { prefix: Some(PrefixMatch::Exact(prefix(text))), ..Selector::default() }
}

fn pending() -> RouteState {
    RouteState::Pending { on: "neighbour".to_owned() }
}
