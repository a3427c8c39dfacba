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

mod history;
mod per_cpu;
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
    Route { prefix: prefix(to), next_hops: vec![next_hop], cpus: None }
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

fn exact(text: &str) -> Selector {
    Selector { prefix: Some(PrefixMatch::Exact(prefix(text))), ..Selector::default() }
}

fn pending() -> RouteState {
    RouteState::Pending { on: "neighbour".to_owned() }
}

#[test]
fn a_route_forwards_as_soon_as_its_next_hop_is_known_and_no_longer_than_it_is() {
    let mut routing = routing();
    let to: IpAddr = "198.19.0.1".parse().unwrap();
    let entry =
        add(&mut routing, route("198.19.0.0/16", Some("198.18.2.2"), Some("eth1"))).unwrap();
    assert_eq!(entry.states[0], pending());
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NeighbourPending)));
    assert_eq!(routing.unconfirmed(), [(ETH1, "198.18.2.2".parse().unwrap())]);

    let reachable = neighbour(ETH1, "198.18.2.2", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(reachable)]).unwrap();
    let adjacency = routing.table.lookup(to).unwrap().unwrap();
    assert_eq!(adjacency.port, ETH1);
    assert_eq!(adjacency.destination_mac, [2, 0, 0, 0, 9, 9]);
    assert_eq!(adjacency.flags, ADJACENCY_FRAGS);
    assert_eq!(routing.unconfirmed(), []);
    let forwarding = RouteState::Forwarding { mac: "02:00:00:00:09:09".to_owned() };
    assert_eq!(routing.show(&Selector::default())[0].states[0], forwarding);

    let stale = neighbour(ETH1, "198.18.2.2", NeighbourState::Stale);
    routing.apply([Event::Neighbour(stale)]).unwrap();
    assert!(routing.table.lookup(to).unwrap().is_ok(), "stale is good to send to");
    assert_eq!(routing.unconfirmed().len(), 1, "and to be confirmed");

    let failed = neighbour(ETH1, "198.18.2.2", NeighbourState::Failed);
    routing.apply([Event::Neighbour(failed)]).unwrap();
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NeighbourFailed)));

    let mut down = link(ETH1, "eth1");
    down.carrier = false;
    routing.apply([Event::Link(down)]).unwrap();
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::EgressDown)));
    routing.apply([Event::LinkGone { ifindex: ETH1 }]).unwrap();
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NoPort)));
}

#[test]
fn an_egress_that_takes_no_frames_gets_none() {
    let mut routing = routing();
    let to: IpAddr = "198.19.0.1".parse().unwrap();
    let reachable = neighbour(ETH1, "198.18.2.2", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(reachable)]).unwrap();
    add(&mut routing, route("198.19.0.0/16", Some("198.18.2.2"), None)).unwrap();
    let mut lookup_with = |xmit, frags| {
        routing
            .set_abilities([(ETH1, Abilities { xmit, frags }), (77, Abilities { xmit, frags })])
            .unwrap();
        assert!(!routing.rib.is_port(77));
        routing.table.lookup(to).unwrap()
    };
    assert_eq!(lookup_with(false, true), Err(Reason::NoXmit));
    assert_eq!(lookup_with(true, false).unwrap().flags, 0);
    assert_eq!(lookup_with(true, true).unwrap().flags, ADJACENCY_FRAGS);
}

#[test]
fn a_changed_mac_or_mtu_is_followed_by_a_new_adjacency() {
    let mut routing = routing();
    let to: IpAddr = "2001:db8:ffff::1".parse().unwrap();
    let reachable = neighbour(ETH1, "2001:db8:2::2", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(reachable.clone())]).unwrap();
    add(&mut routing, route("2001:db8:ffff::/48", Some("2001:db8:2::2"), None)).unwrap();
    let before = routing.table.lookup(to).unwrap().unwrap();

    let changed = Neighbour { mac: Some([2, 0, 0, 0, 7, 7]), ..reachable };
    routing.apply([Event::Neighbour(changed)]).unwrap();
    let mut jumbo = link(ETH1, "eth1");
    jumbo.mtu = 9000;
    routing.apply([Event::Link(jumbo)]).unwrap();
    let after = routing.table.lookup(to).unwrap().unwrap();
    assert_eq!(after, Adjacency { destination_mac: [2, 0, 0, 0, 7, 7], mtu: 9000, ..before });
    assert_eq!(routing.table.graces, 0, "there are new indexes enough");
}

#[test]
fn neighbours_in_a_connected_prefix_are_routes_of_their_own() {
    let mut routing = routing();
    let to: IpAddr = "198.18.2.7".parse().unwrap();
    let entry = add(&mut routing, route("198.18.2.0/24", None, Some("eth1"))).unwrap();
    assert_eq!(entry.states[0], RouteState::Connected);
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NeighbourPending)));

    let reachable = neighbour(ETH1, "198.18.2.7", NeighbourState::Reachable);
    let elsewhere = neighbour(ETH0, "198.18.2.8", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(reachable), Event::Neighbour(elsewhere)]).unwrap();
    assert_eq!(routing.table.lookup(to).unwrap().unwrap().port, ETH1);
    let other: IpAddr = "198.18.2.8".parse().unwrap();
    assert_eq!(routing.table.lookup(other), Some(Err(Reason::NeighbourPending)));
    assert!(matches!(routing.get(to)[0].states[0], RouteState::Forwarding { .. }));
    assert_eq!(routing.get(other)[0].states[0], pending());

    // A longer prefix takes the host away, and gives it back.
    add(&mut routing, route("198.18.2.0/28", Some("198.18.1.9"), Some("eth0"))).unwrap();
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NeighbourPending)));
    routing.delete(&exact("198.18.2.0/28")).unwrap();
    assert_eq!(routing.table.lookup(to).unwrap().unwrap().port, ETH1);

    let gone = Event::NeighbourGone { ifindex: ETH1, address: to };
    routing.apply([gone]).unwrap();
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NeighbourPending)));
    assert_eq!(routing.table.fib.len(), 4, "three local addresses and the connected prefix");
}

#[test]
fn local_prefixes_win_and_hide_what_is_below_them() {
    let mut routing = routing();
    let entry = add(&mut routing, route("198.18.1.1/32", Some("198.18.2.2"), None)).unwrap();
    assert_eq!(entry.states[0], RouteState::Unusable { reason: "local".to_owned() });
    assert_eq!(routing.table.fib[&prefix("198.18.1.1")], ROUTE_LOCAL);

    add(&mut routing, route("198.19.5.0/25", Some("198.18.2.2"), None)).unwrap();
    routing.apply([Event::Local(prefix("198.19.5.0/24"))]).unwrap();
    assert!(!routing.table.fib.contains_key(&prefix("198.19.5.0/25")));
    assert!(routing.table.locals.contains(&prefix("198.19.5.0/24")));
    assert_eq!(routing.table.lookup("198.19.5.1".parse().unwrap()), Some(Err(Reason::Local)));
    routing.apply([Event::LocalGone(prefix("198.19.5.0/24"))]).unwrap();
    assert!(routing.table.fib.contains_key(&prefix("198.19.5.0/25")));
    assert!(!routing.table.locals.contains(&prefix("198.19.5.0/24")));

    routing.apply([Event::LocalGone(prefix("198.18.1.1"))]).unwrap();
    assert_ne!(routing.table.fib[&prefix("198.18.1.1")], ROUTE_LOCAL);
    routing.delete(&exact("198.18.1.1")).unwrap();
    assert!(!routing.table.fib.contains_key(&prefix("198.18.1.1")));
}

#[test]
fn what_there_is_no_room_for_keeps_nothing_else_from_being_done() {
    let mut routing = routing();
    add(&mut routing, route("198.19.0.0/16", Some("198.18.2.2"), None)).unwrap();
    let (first, second) = (prefix("198.19.0.1"), prefix("198.19.0.2"));
    routing.table.refused.insert(first);
    let locals = [Event::Local(first), Event::Local(second)];
    assert!(routing.apply(locals).is_err());
    assert_eq!(routing.table.fib.get(&second), Some(&ROUTE_LOCAL));
    assert!(routing.is_blind(), "packets to the first would be forwarded");

    assert!(routing.apply([]).is_err(), "it is tried again");
    routing.table.refused.clear();
    routing.apply([]).unwrap();
    assert_eq!(routing.table.fib.get(&first), Some(&ROUTE_LOCAL));
    assert!(!routing.is_blind());

    // A neighbour without room goes up, which is no harm.
    add(&mut routing, route("198.18.2.0/24", None, Some("eth1"))).unwrap();
    routing.table.refused.insert(prefix("198.18.2.7"));
    let reachable = neighbour(ETH1, "198.18.2.7", NeighbourState::Reachable);
    assert!(routing.apply([Event::Neighbour(reachable)]).is_err());
    assert!(!routing.is_blind());
}

#[test]
fn what_has_the_index_of_a_port_that_is_gone_is_no_port() {
    let mut routing = routing();
    let reachable = neighbour(ETH1, "198.18.2.2", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(reachable.clone())]).unwrap();
    add(&mut routing, route("198.19.0.0/16", Some("198.18.2.2"), None)).unwrap();
    let stranger = Event::Link(link(ETH1, "foreign"));
    let events = [Event::LinkGone { ifindex: ETH1 }, stranger, Event::Neighbour(reachable)];
    routing.apply(events).unwrap();
    let to = "198.19.0.1".parse().unwrap();
    assert_eq!(routing.table.lookup(to), Some(Err(Reason::NoPort)));
    assert!(!routing.rib.is_port(ETH1));
}

#[test]
fn gateways_are_taken_and_refused_as_linux_does() {
    let mut routing = routing();
    let more = [
        Event::Address(address(ETH0, "fe80::1/64")),
        Event::Local(prefix("fe80::1")),
        Event::Address(address(ETH0, "198.18.7.1/24")),
        Event::Address(address(ETH1, "198.18.7.2/24")),
    ];
    routing.apply(more).unwrap();
    let mut refusal = |via, dev| {
        let route = route(
            if via == "fe80::1" { "2001:db8:9::/48" } else { "198.19.9.0/24" },
            Some(via),
            dev,
        );
        add(&mut routing, route).err().map(|refusal| refusal.message)
    };
    assert_eq!(refusal("fe80::1", Some("eth1")), None, "ours is on another link");
    let ours =
        "fe80::1 cannot be a next hop: it is an address of this host, or a broadcast address";
    assert_eq!(refusal("fe80::1", Some("eth0")).as_deref(), Some(ours));
    let several = refusal("198.18.7.9", None).unwrap();
    assert!(
        several.starts_with("next hop 198.18.7.9 is on several interfaces: say which with 'dev'")
    );
    assert_eq!(refusal("198.18.7.9", Some("eth1")), None);
    let in_no_subnet = refusal("169.254.7.7", Some("eth1")).unwrap();
    assert!(
        in_no_subnet.starts_with("next hop 169.254.7.7 is in no subnet of eth1"),
        "{in_no_subnet}"
    );
}

#[test]
fn ipv6_goes_nowhere_where_linux_has_none() {
    let mut routing = routing();
    let reachable = neighbour(ETH1, "2001:db8:2::2", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(reachable)]).unwrap();
    add(&mut routing, route("2001:db8:9::/48", Some("2001:db8:2::2"), None)).unwrap();
    let to = "2001:db8:9::1".parse().unwrap();
    for (mtu, there) in [(1280, true), (1279, false)] {
        routing.apply([Event::Link(Link { mtu, ..link(ETH1, "eth1") })]).unwrap();
        assert_eq!(routing.table.lookup(to).unwrap().is_ok(), there, "{mtu}");
    }
}

#[test]
fn what_is_refused_and_how_it_is_said() {
    let mut routing = routing_with(limits(2, 0));
    let first = route("198.19.1.0/24", Some("198.18.2.2"), Some("eth1"));
    add(&mut routing, first.clone()).unwrap();
    let rows = [
        (
            first,
            "route 198.19.1.0/24 exists already (via 198.18.2.2 dev eth1): use 'route replace', or delete it first",
        ),
        (
            route("198.19.2.0/24", Some("198.18.2.2"), Some("eth7")),
            "there is no interface eth7: this forwarder has eth0: 198.18.1.1/24; eth1: 198.18.2.1/24, 2001:db8:2::1/64",
        ),
        (
            route("198.19.2.0/24", None, Some("eth9")),
            "eth9 is not an interface of this forwarder (eth0: 198.18.1.1/24; eth1: 198.18.2.1/24, 2001:db8:2::1/64): start it with '--iface …,eth9'",
        ),
        (
            route("198.19.2.0/24", Some("198.18.9.9"), None),
            "next hop 198.18.9.9 is on no interface of this forwarder (eth0: 198.18.1.1/24; eth1: 198.18.2.1/24, 2001:db8:2::1/64)",
        ),
        (
            route("198.19.2.0/24", Some("198.18.9.9"), Some("eth0")),
            "next hop 198.18.9.9 is in no subnet of eth0 (198.18.1.1/24): give eth0 an address in the next hop's subnet, or correct the next hop",
        ),
        (
            route("198.19.2.0/24", Some("198.18.1.1"), None),
            "198.18.1.1 cannot be a next hop: it is an address of this host, or a broadcast address",
        ),
        (
            route("198.19.2.0/24", Some("224.0.0.1"), Some("eth0")),
            "224.0.0.1 cannot be a next hop: it is no host's address",
        ),
        (
            route("198.19.2.0/24", Some("fe80::1"), None),
            "next hop fe80::1 is link-local: say which interface with 'dev'",
        ),
        (
            route("198.19.2.0/24", None, None),
            "198.19.2.0/24: a route needs a next hop: 'via ADDRESS', 'dev INTERFACE' or both",
        ),
        (
            route("2001:db8:5::/48", Some("2001:db8:2::2"), None),
            "the IPv6 table is full (0 routes): start the daemon with '--routes6-max N'",
        ),
    ];
    for (route, message) in rows {
        assert_eq!(add(&mut routing, route).unwrap_err().message, message);
    }
    add(&mut routing, route("198.19.2.0/24", Some("198.18.1.2"), None)).unwrap();
    let full = add(&mut routing, route("198.19.3.0/24", Some("198.18.1.2"), None)).unwrap_err();
    assert_eq!(
        full.message,
        "the IPv4 table is full (2 routes): start the daemon with '--routes4-max N'"
    );
    let replace = route("198.19.2.0/24", Some("198.18.1.3"), None);
    routing.add(replace, Existing::Replace).unwrap();
    assert_eq!(routing.counts(), Counts { routes4: 2, routes6: 0 });

    let missing = routing.delete(&exact("198.19.9.0/24")).unwrap_err();
    assert_eq!(missing.message, "no such route: 198.19.9.0/24");
    let other = Selector { via: Some("198.18.2.9".parse().unwrap()), ..exact("198.19.1.0/24") };
    assert_eq!(
        routing.delete(&other).unwrap_err().message,
        "no such route: 198.19.1.0/24 via 198.18.2.9; it is via 198.18.2.2 dev eth1"
    );
    assert_eq!(routing.counts().routes4, 2);
}

#[test]
fn a_load_is_done_whole_or_not_at_all() {
    let mut routing = routing();
    add(&mut routing, route("198.19.0.0/24", Some("198.18.2.2"), None)).unwrap();
    let before = (routing.table.fib.clone(), routing.show(&Selector::default()));
    let good = |third: u8| route(&format!("198.19.{third}.0/24"), Some("198.18.1.2"), None);

    let mut wrong_at_the_end: Vec<Route> = (1..200).map(good).collect();
    wrong_at_the_end.push(route("198.19.201.0/24", Some("198.18.77.1"), None));
    let refusal = routing.load(wrong_at_the_end, Existing::Refuse).unwrap_err();
    assert_eq!(refusal.index, Some(199));
    let twice = vec![good(1), good(2), good(1)];
    let refusal = routing.load(twice.clone(), Existing::Refuse).unwrap_err();
    assert_eq!((refusal.index, &*refusal.message), (Some(2), "route 198.19.1.0/24 is there twice"));
    assert_eq!((routing.table.fib.clone(), routing.show(&Selector::default())), before);

    // The kernel refuses one in the middle: what was written is taken back.
    // One word for the new next hop, then twenty prefixes, which are one write of all or none.
    for fails_after in 0..2 {
        routing.table.fails_after = Some(fails_after);
        let replacing = (0..20).map(good).collect();
        let refusal = routing.load(replacing, Existing::Replace).unwrap_err();
        assert!(refusal.message.ends_with(": nothing was changed"), "{}", refusal.message);
        routing.table.fails_after = None;
        let fib: Vec<Prefix> = routing.table.fib.keys().copied().collect();
        assert_eq!(fib, before.0.keys().copied().collect::<Vec<_>>());
        assert_eq!(routing.show(&Selector::default()), before.1);
        assert_eq!(routing.counts().routes4, 1);
    }
    assert_eq!(routing.load(twice, Existing::Replace), Ok(3));
    assert_eq!(routing.counts().routes4, 3);
    assert_eq!(
        routing.flush(&Selector { dev: Some("eth0".to_owned()), ..Selector::default() }),
        Ok(2)
    );
    assert_eq!(routing.counts().routes4, 1);
}
