//! What routes mean, and how they change.

use super::*;
use crate::paths::Hop;

const ETH0: u32 = 2;
const ETH1: u32 = 3;
/// Not ours.
const OTHER: u32 = 9;

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn hop(ifindex: u32, via: &str) -> Hop {
    Hop { ifindex, via: via.parse().ok() }
}

fn member(ifindex: u32, via: &str, weight: u16) -> Member {
    Member { hop: hop(ifindex, via), weight }
}

fn via(members: &[Member]) -> KernelRoute {
    let next = Next::Members(members.to_vec());
    KernelRoute { metric: 0, tos: 0, protocol: 4, next, skip: None }
}

fn over(id: u32) -> KernelRoute {
    KernelRoute { next: Next::Object(id), ..via(&[]) }
}

fn left(skip: Skip) -> KernelRoute {
    KernelRoute { skip: Some(skip), ..via(&[]) }
}

fn decision(mirror: &Mirror, to: &str) -> Option<Decision> {
    mirror.decision(prefix(to), |ifindex| ifindex != OTHER)
}

fn paths(members: &[Member]) -> Paths {
    Paths::several(members.to_vec())
}

fn mirror_of(routes: &[(&str, KernelRoute)]) -> Mirror {
    let mut mirror = Mirror::default();
    for (to, route) in routes {
        mirror.add(prefix(to), route.clone(), Position::Last);
    }
    mirror
}

#[test]
fn the_first_route_counts_and_what_cannot_be_expressed_is_left() {
    let (one, two) = (member(ETH0, "198.18.1.2", 1), member(ETH1, "198.18.2.2", 3));
    let foreign = member(OTHER, "198.18.3.2", 1);
    let worse = KernelRoute { metric: 50, ..via(&[two]) };
    let tos = KernelRoute { metric: 90, tos: 4, skip: Some(Skip::Tos), ..via(&[two]) };
    let many: Vec<Member> = (0..=256u32)
        .map(|n| member(ETH0, &format!("198.18.{}.{}", n / 250, n % 250 + 1), 1))
        .collect();
    let cases: [(&[KernelRoute], Option<Decision>); 12] = [
        (&[], None),
        (&[via(&[one])], Some(Ok(paths(&[one])))),
        (&[worse.clone(), via(&[one])], Some(Ok(paths(&[one])))),
        (&[worse.clone(), left(Skip::Blackhole)], Some(Err(Skip::Blackhole))),
        (
            &[KernelRoute { metric: 60, ..left(Skip::Mtu) }, worse.clone()],
            Some(Ok(paths(&[Member { weight: 1, ..two }]))),
        ),
        (&[via(&[one]), tos], Some(Err(Skip::Tos))),
        (&[via(&[two, one])], Some(Ok(paths(&[one, two])))),
        // One next hop elsewhere is for `way()` to say.
        (&[via(&[foreign])], Some(Ok(paths(&[foreign])))),
        (&[via(&[one, foreign])], Some(Err(Skip::Egress))),
        (&[via(&many)], Some(Err(Skip::Members))),
        (&[via(&[one, one])], Some(Ok(paths(&[member(ETH0, "198.18.1.2", 1)])))),
        (&[over(5)], Some(Err(Skip::Nexthop))),
    ];
    for (routes, expected) in cases {
        let named: Vec<_> = routes.iter().map(|route| ("198.19.0.0/16", route.clone())).collect();
        let mirror = mirror_of(&named);
        assert_eq!(decision(&mirror, "198.19.0.0/16"), expected, "{routes:?}");
    }
    // Of several IPv6 routes with one metric Linux takes which it likes.
    let one = via(&[member(ETH0, "", 1)]);
    let other = via(&[member(ETH1, "", 1)]);
    let mirror = mirror_of(&[("2001:db8::/32", one), ("2001:db8::/32", other)]);
    assert_eq!(decision(&mirror, "2001:db8::/32"), Some(Err(Skip::Ambiguous)));
}

#[test]
fn an_object_that_changes_takes_its_routes_along() {
    let to = "198.19.0.0/16";
    let mut mirror =
        mirror_of(&[(to, over(7)), ("198.18.9.0/24", via(&[member(ETH0, "198.18.1.9", 1)]))]);
    let object = |id, way| Nexthop { id, way };
    let single = |id, ifindex, via: &str| object(id, NexthopWay::Hop(hop(ifindex, via)));
    mirror.set_nexthops(vec![
        single(1, ETH0, "198.18.1.2"),
        single(2, ETH1, "198.18.2.2"),
        object(7, NexthopWay::Group(vec![(1, 1), (2, 4)])),
    ]);
    let (one, two) = (member(ETH0, "198.18.1.2", 1), member(ETH1, "198.18.2.2", 4));
    assert_eq!(decision(&mirror, to), Some(Ok(paths(&[one, two]))));

    assert_eq!(mirror.set_nexthop(single(2, ETH1, "198.18.2.3")), [prefix(to)]);
    let two = member(ETH1, "198.18.2.3", 4);
    assert_eq!(decision(&mirror, to), Some(Ok(paths(&[one, two]))));
    assert_eq!(mirror.set_nexthop(single(3, ETH1, "198.18.2.9")), [], "nobody uses it");

    // The kernel takes a member out of its groups without a word.
    assert_eq!(mirror.remove_nexthop(1), []);
    assert_eq!(decision(&mirror, to), Some(Ok(paths(&[Member { weight: 1, ..two }]))));
    assert_eq!(mirror.set_nexthop(object(2, NexthopWay::Skip(Skip::Blackhole))), [prefix(to)]);
    assert_eq!(decision(&mirror, to), Some(Err(Skip::Blackhole)));
    assert_eq!(mirror.remove_nexthop(7), [prefix(to)]);
    assert_eq!(decision(&mirror, to), None, "routes go with their object");
    assert_eq!(mirror.count(Family::Inet), 1);
}

#[test]
fn what_a_list_does_not_name_goes_and_nothing_before_its_end() {
    let (one, two) = (via(&[member(ETH0, "198.18.1.2", 1)]), via(&[member(ETH1, "198.18.2.2", 1)]));
    let worse = KernelRoute { metric: 9, ..two.clone() };
    let mut mirror = mirror_of(&[
        ("198.19.0.0/16", one.clone()),
        ("198.19.1.0/24", one.clone()),
        ("2001:db8::/32", one.clone()),
    ]);
    mirror.begin(Family::Inet);
    assert!(!mirror.listed(prefix("198.19.0.0/16"), one.clone()));
    assert!(mirror.listed(prefix("198.19.0.0/16"), worse.clone()), "one more is news");
    assert!(mirror.listed(prefix("198.19.2.0/24"), two.clone()));
    assert!(mirror.contains(prefix("198.19.1.0/24")), "not before the list's end");
    // The list began anew: what it said before does not count.
    mirror.begin(Family::Inet);
    assert!(mirror.listed(prefix("198.19.0.0/16"), one.clone()));
    assert!(mirror.listed(prefix("198.19.0.0/16"), worse));
    assert_eq!(mirror.end(Family::Inet), ["198.19.1.0/24", "198.19.2.0/24"].map(prefix));
    assert_eq!(mirror.routes(prefix("198.19.0.0/16")).count(), 2);
    assert!(mirror.contains(prefix("2001:db8::/32")), "of another family");
}

#[test]
fn ipv4_routes_that_lead_by_a_dead_interface_alone_go_with_it() {
    let (one, two) = (member(ETH0, "198.18.1.2", 1), member(ETH1, "198.18.2.2", 1));
    let second = KernelRoute { metric: 9, ..via(&[two]) };
    let mut mirror = mirror_of(&[
        ("198.19.0.0/16", via(&[one])),
        ("198.19.1.0/24", via(&[one, two])),
        ("198.19.2.0/24", via(&[one])),
        ("198.19.2.0/24", second.clone()),
        ("198.19.3.0/24", left(Skip::Blackhole)),
        ("2001:db8::/32", via(&[one])),
    ]);
    let touched = mirror.remove_by_interface(|ifindex| ifindex == ETH0);
    assert_eq!(touched, ["198.19.0.0/16", "198.19.2.0/24"].map(prefix));
    assert!(!mirror.contains(prefix("198.19.0.0/16")));
    assert!(mirror.contains(prefix("198.19.3.0/24")) && mirror.contains(prefix("2001:db8::/32")));
    assert_eq!(decision(&mirror, "198.19.2.0/24"), Some(Ok(paths(&[two]))));
    assert_eq!(
        decision(&mirror, "198.19.1.0/24"),
        Some(Ok(paths(&[one, two]))),
        "`way()` says the rest"
    );
}
