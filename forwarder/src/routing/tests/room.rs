//! Where the kernel has no room left.

use super::*;

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
fn what_is_for_this_host_has_the_last_place() {
    let mut routing = routing();
    add(&mut routing, route("198.18.2.0/24", None, Some("eth1"))).unwrap();
    routing.table.room = Some(routing.table.fib.len() + 1);
    let neighbour = neighbour(ETH1, "198.18.2.7", NeighbourState::Reachable);
    let local = prefix("198.19.0.1");
    assert!(routing.apply([Event::Neighbour(neighbour), Event::Local(local)]).is_err());
    assert_eq!(routing.table.fib.get(&local), Some(&ROUTE_LOCAL));
    assert!(!routing.is_blind(), "packets to the neighbour go up, and no others");
}
