//! Where the kernel has no room left.

use super::*;
use crate::prefix::Family;

/// Families whose packets all go up, since some of them could be for this host.
fn blind(routing: &Routing<FakeTable>) -> Vec<Family> {
    let blind: Vec<_> =
        Family::ALL.into_iter().filter(|family| routing.is_blind(*family)).collect();
    assert_eq!(routing.table.punted, blind.iter().copied().collect());
    blind
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
    assert_eq!(blind(&routing), [Family::Inet], "packets to the first would be forwarded");

    assert!(routing.apply([]).is_err(), "it is tried again");
    assert_eq!(blind(&routing), [Family::Inet]);
    // What else is done makes no difference.
    add(&mut routing, route("198.20.0.0/16", Some("198.18.2.2"), None)).unwrap();
    routing.set_abilities([(ETH1, Abilities { xmit: true, frags: false })]).unwrap_err();
    assert_eq!(blind(&routing), [Family::Inet]);
    routing.table.refused.clear();
    routing.apply([]).unwrap();
    assert_eq!(routing.table.fib.get(&first), Some(&ROUTE_LOCAL));
    assert_eq!(blind(&routing), []);

    // A neighbour without room goes up, which is no harm.
    add(&mut routing, route("198.18.2.0/24", None, Some("eth1"))).unwrap();
    routing.table.refused.insert(prefix("198.18.2.7"));
    let reachable = neighbour(ETH1, "198.18.2.7", NeighbourState::Reachable);
    assert!(routing.apply([Event::Neighbour(reachable)]).is_err());
    assert_eq!(blind(&routing), []);
}

#[test]
fn what_is_for_this_host_has_the_last_place() {
    let mut routing = routing();
    add(&mut routing, route("198.18.2.0/24", None, Some("eth1"))).unwrap();
    routing.table.room = Some(routing.table.fib.len() + 1);
    let neighbour = neighbour(ETH1, "198.18.2.7", NeighbourState::Reachable);
    let local = prefix("198.19.0.1");
    assert!(routing.apply([Event::Neighbour(neighbour), Event::Local(local)]).is_err());
    assert_eq!(routing.table.fib.get(&local), Some(&ROUTE_LOCAL));
    assert_eq!(blind(&routing), [], "packets to the neighbour go up, and no others");
}

#[test]
fn a_family_is_blind_alone() {
    let mut routing = routing();
    let (four, six) = (prefix("198.19.0.1"), prefix("2001:db8:9::1"));
    routing.table.refused = [four, six].into();
    assert!(routing.apply([Event::Local(six)]).is_err());
    assert_eq!(blind(&routing), [Family::Inet6]);
    assert!(routing.apply([Event::Local(four)]).is_err());
    assert_eq!(blind(&routing), Family::ALL);
    // It is no address of this host any more.
    routing.apply([Event::LocalGone(six)]).unwrap_err();
    assert_eq!(blind(&routing), [Family::Inet]);
    routing.apply([Event::LocalGone(four)]).unwrap();
    assert_eq!(blind(&routing), []);
}

#[test]
fn a_route_below_a_local_prefix_that_cannot_be_taken_away_is_no_way_out() {
    let mut routing = routing();
    let below = prefix("198.19.1.0/24");
    add(&mut routing, route("198.19.1.0/24", Some("198.18.2.2"), None)).unwrap();
    routing.table.refused.insert(below);
    let local = prefix("198.19.0.0/16");
    assert!(routing.apply([Event::Local(local)]).is_err());
    assert_eq!(routing.table.fib.get(&local), Some(&ROUTE_LOCAL));
    assert!(routing.table.fib.contains_key(&below), "packets to this host would be forwarded");
    assert_eq!(blind(&routing), [Family::Inet]);
    routing.table.refused.clear();
    routing.apply([]).unwrap();
    assert_eq!(blind(&routing), []);
}

#[test]
fn a_local_prefix_that_cannot_be_marked_as_no_source_stops_ipv4() {
    let mut routing = routing();
    routing.table.room_for_locals = Some(2);
    let (four, six) = (prefix("198.19.0.1"), prefix("2001:db8:9::1"));
    assert!(routing.apply([Event::Local(four), Event::Local(six)]).is_err());
    assert_eq!(routing.table.fib.get(&four), Some(&ROUTE_LOCAL));
    assert_eq!(blind(&routing), [Family::Inet], "packets from it would be forwarded");
    // One less, and there is room again.
    routing.apply([Event::LocalGone(prefix("198.18.2.1"))]).unwrap_err();
    routing.apply([]).unwrap();
    assert_eq!(blind(&routing), []);
}
