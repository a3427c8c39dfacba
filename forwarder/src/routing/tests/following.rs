//! What the kernel says of links, neighbours and the local table changes where packets go.

use super::*;

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
