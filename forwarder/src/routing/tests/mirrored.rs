//! Routes of Linux's, together with ours and with what there is no room for.

use forwarder_common::abi::{ROUTE_DISCARD, ROUTE_PUNT};

use super::*;
use crate::{
    netlink::{
        LinuxAnswer,
        event::{KernelRoute, Next, Position, Skip},
    },
    paths::Hop,
};

fn by(ifindex: u32, via: &str) -> KernelRoute {
    let hop = Hop { ifindex, via: via.parse().ok() };
    let next = Next::Members(vec![Member { hop, weight: 1 }]);
    KernelRoute { metric: 0, tos: 0, protocol: 12, next, skip: None }
}

fn told(to: &str, route: KernelRoute) -> Event {
    Event::Route { prefix: prefix(to), route, position: Position::First }
}

fn gone(to: &str, route: KernelRoute) -> Event {
    Event::RouteGone { prefix: prefix(to), route }
}

/// Both gateways are known.
fn with_neighbours(limits: Limits) -> Routing<FakeTable> {
    let mut routing = routing_with(limits);
    let known = |ifindex, address| neighbour(ifindex, address, NeighbourState::Permanent);
    let events =
        [(ETH0, "198.18.1.2"), (ETH1, "198.18.2.2")].map(|it| Event::Neighbour(known(it.0, it.1)));
    routing.apply(events).unwrap();
    routing
}

fn port(routing: &Routing<FakeTable>, to: &str) -> Option<Result<u32, Reason>> {
    let way = routing.table.lookup(to.parse().unwrap())?;
    Some(way.map(|adjacency| adjacency.port))
}

#[test]
fn the_longest_prefix_counts_over_all_sources_and_ours_of_equal_ones() {
    let mut routing = with_neighbours(limits(100, 100));
    let to = "198.19.1.1";
    routing.apply([told("198.19.0.0/16", by(ETH1, "198.18.2.2"))]).unwrap();
    assert_eq!(port(&routing, to), Some(Ok(ETH1)));
    assert_eq!(routing.counts().routes4, 1);
    add(&mut routing, route("198.19.0.0/16", Some("198.18.1.2"), None)).unwrap();
    assert_eq!(port(&routing, to), Some(Ok(ETH0)));
    routing.apply([told("198.19.1.0/24", by(ETH1, "198.18.2.2"))]).unwrap();
    assert_eq!(port(&routing, to), Some(Ok(ETH1)), "it is longer");
    let shown = routing.show(&Selector::default());
    let of: Vec<_> = shown.iter().map(|entry| (entry.route.prefix.len(), &entry.linux)).collect();
    assert!(matches!(of[..], [(16, None), (16, Some(_)), (24, Some(_))]), "{of:?}");
    assert!(shown[1].linux.as_ref().unwrap().shadowed);
    assert_eq!(routing.get(to.parse().unwrap())[0].linux.as_ref().unwrap().protocol, 12);

    routing.delete(&exact("198.19.0.0/16")).unwrap();
    routing.apply([gone("198.19.1.0/24", by(ETH1, "198.18.2.2"))]).unwrap();
    assert_eq!(port(&routing, to), Some(Ok(ETH1)), "Linux's is still there");
    routing.apply([gone("198.19.0.0/16", by(ETH1, "198.18.2.2"))]).unwrap();
    assert_eq!(port(&routing, to), None);
    assert_eq!(routing.table.fib.len(), 3, "local addresses and nothing else");
}

#[test]
fn what_is_left_to_linux_hides_what_is_shorter() {
    let mut routing = with_neighbours(limits(100, 100));
    routing.apply([told("198.19.0.0/16", by(ETH1, "198.18.2.2"))]).unwrap();
    for (skip, id) in [(Skip::Blackhole, ROUTE_DISCARD), (Skip::Encapsulation, ROUTE_PUNT)] {
        let left = KernelRoute { skip: Some(skip), ..by(ETH1, "198.18.2.2") };
        routing.apply([told("198.19.1.0/24", left.clone())]).unwrap();
        assert_eq!(routing.table.fib.get(&prefix("198.19.1.0/24")), Some(&id));
        let entry = &routing.get("198.19.1.1".parse().unwrap())[0];
        assert_eq!(entry.linux.as_ref().unwrap().skip, Some(skip));
        assert!(!entry.forwards());
        let skipped = Selector { skipped: true, ..Selector::default() };
        assert_eq!(routing.show(&skipped).len(), 1);
        routing.apply([gone("198.19.1.0/24", left)]).unwrap();
        assert_eq!(port(&routing, "198.19.1.1"), Some(Ok(ETH1)));
    }
}

#[test]
fn hosts_of_a_connected_route_of_linuxs_are_routes_of_their_own() {
    let mut routing = with_neighbours(limits(100, 100));
    assert_eq!(port(&routing, "198.18.2.2"), None);
    routing.apply([told("198.18.2.0/24", by(ETH1, ""))]).unwrap();
    assert_eq!(port(&routing, "198.18.2.2"), Some(Ok(ETH1)));
    assert_eq!(port(&routing, "198.18.2.3"), Some(Err(Reason::NeighbourPending)));
    // One of link-local ones would never be asked for.
    let link_local = neighbour(ETH1, "fe80::2", NeighbourState::Reachable);
    routing.apply([Event::Neighbour(link_local), told("fe80::/64", by(ETH1, ""))]).unwrap();
    assert!(!routing.table.fib.contains_key(&prefix("fe80::2/128")));
    routing.apply([gone("198.18.2.0/24", by(ETH1, ""))]).unwrap();
    assert_eq!(port(&routing, "198.18.2.2"), None);
}

#[test]
fn without_room_for_next_hops_packets_go_up_and_are_looked_after_again() {
    let mut routing = with_neighbours(Limits { sets: 3, ..limits(100, 100) });
    // Both neighbours are none of a connected route: the sets are all free.
    let events = ["198.19.0.0/16", "198.19.1.0/24", "198.19.2.0/24", "198.19.3.0/24"]
        .into_iter()
        .zip([
            (ETH1, "198.18.2.2"),
            (ETH0, "198.18.1.2"),
            (ETH1, "198.18.2.3"),
            (ETH1, "198.18.2.4"),
        ])
        .map(|(to, (ifindex, via))| told(to, by(ifindex, via)));
    assert!(routing.apply(events).is_err());
    let last = prefix("198.19.3.0/24");
    assert_eq!(routing.table.fib.get(&last), Some(&ROUTE_PUNT), "and not the way of the /16");
    assert!(!routing.is_blind(Family::Inet), "its packets go up: that is right");
    let entry = &routing.get("198.19.3.1".parse().unwrap())[0];
    assert_eq!(entry.linux.as_ref().unwrap().skip, Some(Skip::Room));
    // Room comes, and is found at the next occasion.
    let _ = routing.apply([gone("198.19.2.0/24", by(ETH1, "198.18.2.3"))]);
    routing.apply([]).unwrap();
    assert_eq!(port(&routing, "198.19.3.1"), Some(Err(Reason::NeighbourPending)));
}

#[test]
fn without_room_for_a_prefix_its_family_goes_up() {
    let mut routing = with_neighbours(limits(100, 100));
    let (to, shorter) = (prefix("198.19.1.0/24"), "198.19.0.0/16");
    routing.table.refused.insert(to);
    let events =
        [told(shorter, by(ETH1, "198.18.2.2")), told("198.19.1.0/24", by(ETH0, "198.18.1.2"))];
    assert!(routing.apply(events).is_err());
    assert!(routing.is_blind(Family::Inet) && !routing.is_blind(Family::Inet6));
    assert_eq!(routing.table.punted, [Family::Inet].into());
    // It goes again before there is room: nothing is wrong any more.
    routing.apply([gone("198.19.1.0/24", by(ETH0, "198.18.1.2"))]).unwrap();
    assert!(!routing.is_blind(Family::Inet));
    assert_eq!(routing.table.punted, [].into());

    // One that cannot be changed any more leads where it must not.
    routing.table.refused.clear();
    routing.apply([told("198.19.1.0/24", by(ETH0, "198.18.1.2"))]).unwrap();
    routing.table.refused.insert(to);
    let other =
        Event::Route { prefix: to, route: by(ETH1, "198.18.2.2"), position: Position::Replace };
    assert!(routing.apply([other]).is_err());
    assert!(routing.is_blind(Family::Inet));
    routing.table.refused.clear();
    routing.apply([]).unwrap();
    assert_eq!(port(&routing, "198.19.1.1"), Some(Ok(ETH1)));
    assert!(!routing.is_blind(Family::Inet));
}

#[test]
fn the_auditor_sees_whatever_is_not_as_linux_says() {
    let mut routing = with_neighbours(limits(100, 100));
    routing
        .apply([
            told("198.19.0.0/16", by(ETH1, "198.18.2.2")),
            told("198.19.9.0/24", KernelRoute { skip: Some(Skip::Mtu), ..by(ETH0, "198.18.1.2") }),
            told("198.18.2.0/24", by(ETH1, "")),
        ])
        .unwrap();
    let linux = |ifindex, via: &str| LinuxAnswer::Via(by(ifindex, via).next);
    let what = |routing: &Routing<FakeTable>, to: &str, linux: &LinuxAnswer| {
        routing.difference(to.parse().unwrap(), linux).map(|difference| difference.what)
    };
    let good = linux(ETH1, "198.18.2.2");
    assert_eq!(what(&routing, "198.19.1.1", &good), None);
    // The neighbour of a connected route is the destination itself.
    assert_eq!(what(&routing, "198.18.2.2", &linux(ETH1, "")), None);
    // What goes up is right, whatever Linux does; and what neither knows.
    assert_eq!(what(&routing, "198.19.9.1", &linux(ETH0, "198.18.1.2")), None);
    assert_eq!(what(&routing, "198.18.1.1", &LinuxAnswer::Local), None);
    assert_eq!(what(&routing, "203.0.113.1", &LinuxAnswer::Nothing), None);

    let other = what(&routing, "198.19.1.1", &linux(ETH0, "198.18.1.2")).unwrap();
    assert_eq!(other, "XDP sends it via 198.18.2.2 dev eth1, and Linux via 198.18.1.2 dev eth0");
    let nowhere = what(&routing, "198.19.1.1", &LinuxAnswer::Nothing).unwrap();
    assert_eq!(nowhere, "XDP sends it via 198.18.2.2 dev eth1, and Linux nowhere");
    let local = what(&routing, "198.19.1.1", &LinuxAnswer::Local).unwrap();
    assert!(local.ends_with("and Linux nowhere"), "{local}");
    // What counts is what is written, and not what should be.
    routing.table.fib.remove(&prefix("198.19.0.0/16"));
    let missing = what(&routing, "198.19.1.1", &good).unwrap();
    assert_eq!(missing, "Linux sends it via 198.18.2.2 dev eth1, and XDP has no route");
    // Ours alone are not Linux's to know.
    add(&mut routing, route("198.19.0.0/16", Some("198.18.1.2"), None)).unwrap();
    assert_eq!(what(&routing, "198.19.1.1", &good), None);
}

#[test]
fn the_edges_of_a_prefix_are_those_that_are_forwarded() {
    let text = |of: &str| edges(prefix(of)).map(|it| it.to_string()).collect::<Vec<_>>();
    assert_eq!(text("198.19.1.0/24"), ["198.19.0.255", "198.19.1.0", "198.19.1.255", "198.19.2.0"]);
    assert_eq!(text("198.19.1.1/32").len(), 4);
    assert_eq!(text("128.0.0.0/1"), ["128.0.0.0"], "below is loopback, above is nothing");
    assert_eq!(text("0.0.0.0/0"), [""; 0]);
    assert_eq!(text("2001:db8::/32").len(), 4);
    assert_eq!(
        text("fe80::/10"),
        ["fec0::"]
            .map(|_| "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
            .into_iter()
            .chain(["fec0::"])
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_list_that_comes_again_changes_nothing_but_what_has_changed() {
    let mut routing = with_neighbours(limits(100, 100));
    let list = |routes: Vec<(Prefix, KernelRoute)>| {
        [Event::RoutesBegin(Family::Inet), Event::Routes(routes), Event::RoutesEnd(Family::Inet)]
    };
    let one = (prefix("198.19.0.0/16"), by(ETH1, "198.18.2.2"));
    let two = (prefix("198.19.1.0/24"), by(ETH0, "198.18.1.2"));
    routing.apply(list(vec![one.clone(), two.clone()])).unwrap();
    let writes = routing.table.fib.clone();
    for event in list(vec![one.clone(), two]) {
        routing.apply([event]).unwrap();
        assert_eq!(routing.table.fib, writes, "no good route is missing for a moment");
    }
    routing.apply(list(vec![one])).unwrap();
    assert_eq!(port(&routing, "198.19.1.1"), Some(Ok(ETH1)));
}

#[test]
fn pages_show_each_route_once_and_in_order_whoever_has_it() {
    let mut routing = with_neighbours(limits(10_000, 100));
    let prefix_of = |number: u32| format!("198.19.{}.{}/32", number / 250, number % 250);
    let linux: Vec<Event> = (0..1500)
        .filter(|number| number % 3 != 0)
        .map(|number| told(&prefix_of(number), by(ETH1, "198.18.2.2")))
        .collect();
    routing.apply(linux).unwrap();
    let ours = (0..1500).filter(|number| number % 2 == 0);
    let ours = ours.map(|number| route(&prefix_of(number), Some("198.18.1.2"), None)).collect();
    routing.load(ours, Existing::Refuse).unwrap();

    let shown = routing.show(&Selector::default());
    let key = |entry: &RouteEntry| (entry.route.prefix, entry.linux.is_some());
    assert_eq!(shown.len(), 1000 + 750);
    assert!(shown.is_sorted_by(|one, next| key(one) < key(next)), "each once, ours first");
    assert!(routing.page(&Selector::default(), None).entries.len() < 300, "a page at a time");
}
