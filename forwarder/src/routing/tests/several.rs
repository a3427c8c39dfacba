//! Routes with several next hops.

use std::collections::BTreeMap;

use super::{
    table::{Way, Writes},
    *,
};

const TO: &str = "198.19.0.1";
pub(super) const PREFIX: &str = "198.19.0.0/16";

pub(super) fn grammar(words: &str) -> Route {
    crate::route::grammar::route(&words.split_whitespace().collect::<Vec<_>>(), None).unwrap()
}

/// Two next hops by eth0 and one by eth1, each with a MAC address of its own that its last byte
/// tells apart.
pub(super) fn with_neighbours() -> Routing<FakeTable> {
    let mut routing = routing();
    let known = [(ETH0, "198.18.1.2", 2), (ETH0, "198.18.1.3", 3), (ETH1, "198.18.2.4", 4)];
    for (ifindex, address, byte) in known {
        routing.apply([Event::Neighbour(reachable(ifindex, address, byte))]).unwrap();
    }
    routing
}

pub(super) fn reachable(ifindex: u32, address: &str, byte: u8) -> Neighbour {
    let mac = Some([2, 0, 0, 0, 9, byte]);
    Neighbour { mac, ..neighbour(ifindex, address, NeighbourState::Reachable) }
}

pub(super) fn three(weights: [u16; 3]) -> Route {
    let [a, b, c] = weights;
    grammar(&format!(
        "{PREFIX} nexthop via 198.18.1.2 weight {a} nexthop via 198.18.1.3 weight {b} nexthop via 198.18.2.4 weight {c}"
    ))
}

/// Of 1,024 flows, one a bucket or as many for each: how many go to which neighbour.
pub(super) fn counts(routing: &Routing<FakeTable>) -> BTreeMap<u8, usize> {
    let mut counts = BTreeMap::new();
    for byte in owners(routing) {
        *counts.entry(byte).or_default() += 1;
    }
    counts
}

pub(super) fn owners(routing: &Routing<FakeTable>) -> Vec<u8> {
    let ways = routing.table.spread(0, TO.parse().unwrap()).unwrap();
    ways.into_iter().map(|way| way.unwrap().destination_mac[5]).collect()
}

fn only(routing: &Routing<FakeTable>) -> Way {
    let ways = routing.table.spread(0, TO.parse().unwrap()).unwrap();
    assert!(ways.iter().all(|way| *way == ways[0]));
    ways[0]
}

pub(super) fn failed(ifindex: u32, address: &str) -> Event {
    Event::Neighbour(neighbour(ifindex, address, NeighbourState::Failed))
}

#[test]
fn flows_are_spread_by_weight() {
    let mut routing = with_neighbours();
    let entry = add(&mut routing, three([1, 2, 1])).unwrap();
    assert!(entry.forwards());
    assert_eq!(counts(&routing), [(2, 256), (3, 512), (4, 256)].into());
    routing.add(three([3, 1, 1]), Existing::Replace).unwrap();
    let counts = counts(&routing);
    // 205 of 1,024 are a fifth; a bucket is worth two here.
    assert!(
        [(2, 614), (3, 205), (4, 205)].iter().all(|(byte, even)| {
            let count: usize = counts[byte];
            count.abs_diff(*even) <= 2
        }),
        "{counts:?}"
    );
}

#[test]
fn a_member_that_fails_gives_its_flows_to_the_others_and_takes_them_back() {
    let mut routing = with_neighbours();
    add(&mut routing, three([1, 2, 1])).unwrap();
    for number in 1..=100 {
        add(
            &mut routing,
            Route { prefix: prefix(&format!("198.19.0.{number}")), ..three([1, 2, 1]) },
        )
        .unwrap();
    }
    let before = owners(&routing);
    routing.table.writes = Writes::default();
    routing.apply([failed(ETH0, "198.18.1.2")]).unwrap();
    let after = owners(&routing);
    assert!(before.iter().zip(&after).all(|(was, is)| *was == 2 || was == is));
    let now = counts(&routing);
    assert!(now[&3].abs_diff(683) <= 4 && now[&4].abs_diff(341) <= 4, "{now:?}");
    // A quarter of 256 buckets, however many prefixes; no word, no prefix.
    let writes = routing.table.writes;
    assert_eq!((writes.prefixes, writes.words, writes.buckets), (0, 0, 64));
    let states = routing.show(&exact(PREFIX))[0].states.clone();
    assert_eq!(states[0], RouteState::Unusable { reason: "neighbour_failed".to_owned() });
    assert!(states[1..].iter().all(RouteState::forwards));
    assert_eq!(routing.waiting(), 0);

    routing.apply([Event::Neighbour(reachable(ETH0, "198.18.1.2", 2))]).unwrap();
    assert_eq!(owners(&routing), before);
}

#[test]
fn an_egress_that_goes_takes_all_its_members_and_one_that_is_left_has_all() {
    let mut routing = with_neighbours();
    add(&mut routing, three([1, 1, 1])).unwrap();
    let before = owners(&routing);
    let carrier = |carrier| Event::Link(Link { carrier, ..link(ETH0, "eth0") });
    routing.apply([carrier(false)]).unwrap();
    assert_eq!(counts(&routing), [(4, 1024)].into());
    // Together with the last: nothing is left, and the word tells why.
    routing.apply([failed(ETH1, "198.18.2.4")]).unwrap();
    assert_eq!(only(&routing), Err(Reason::EgressDown));
    assert_eq!(routing.waiting(), 1);
    assert!(routing.table.buckets.values().all(|adjacency| *adjacency == 0), "no way is kept");
    routing
        .apply([Event::NeighbourGone { ifindex: ETH1, address: "198.18.2.4".parse().unwrap() }])
        .unwrap();
    assert_eq!(only(&routing), Err(Reason::NeighbourPending), "the one that may yet come");
    routing.apply([carrier(true), Event::Neighbour(reachable(ETH1, "198.18.2.4", 4))]).unwrap();
    assert_eq!(owners(&routing), before);
}

#[test]
fn a_mac_address_that_changes_is_followed_in_every_group() {
    let mut routing = with_neighbours();
    add(&mut routing, three([1, 1, 1])).unwrap();
    add(&mut routing, grammar("198.20.0.0/16 via 198.18.2.4")).unwrap();
    add(&mut routing, grammar("198.21.0.0/16 nexthop via 198.18.1.2 nexthop via 198.18.2.4"))
        .unwrap();
    routing.table.writes = Writes::default();
    routing.apply([Event::Neighbour(reachable(ETH1, "198.18.2.4", 77))]).unwrap();
    assert_eq!(routing.table.writes.adjacencies, 1, "all share it");
    let by = |to: &str| {
        let ways = routing.table.spread(0, to.parse().unwrap()).unwrap();
        let macs = ways.into_iter().map(|way| way.unwrap().destination_mac[5]);
        macs.filter(|byte| *byte == 77).count()
    };
    assert_eq!((by("198.20.0.1"), by("198.21.0.1")), (1024, 512));
    assert!(by(TO).abs_diff(341) <= 4);
    assert!(!owners(&routing).contains(&4));
}

#[test]
fn a_write_that_fails_midway_is_made_up_for() {
    for fails_after in 0..70 {
        let mut routing = with_neighbours();
        add(&mut routing, three([1, 2, 1])).unwrap();
        let before = owners(&routing);
        routing.table.fails_after = Some(fails_after);
        let failed = routing.apply([failed(ETH0, "198.18.1.2")]);
        assert_eq!(failed.is_err(), fails_after < 64, "64 buckets are written");
        routing.table.fails_after = None;
        routing.apply([]).unwrap();
        assert!(!owners(&routing).contains(&2));
        routing.table.fails_after = Some(fails_after);
        // One adjacency, then the buckets.
        let back = routing.apply([Event::Neighbour(reachable(ETH0, "198.18.1.2", 2))]);
        assert_eq!(back.is_err(), fails_after < 65);
        routing.table.fails_after = None;
        routing.apply([]).unwrap();
        assert_eq!(owners(&routing), before);
    }
}

#[test]
fn append_adds_a_next_hop_and_del_takes_one_away() {
    let mut routing = with_neighbours();
    let append = |routing: &mut Routing<_>, words: &str| {
        let entry = routing.add(grammar(words), Existing::Append);
        entry.map(|entry| entry.route.to_string()).map_err(|refusal| refusal.message)
    };
    let one = format!("{PREFIX} via 198.18.1.2 dev eth0");
    assert_eq!(append(&mut routing, &one).unwrap(), one);
    assert_eq!(
        append(&mut routing, &one).unwrap_err(),
        format!("File exists: {PREFIX} would lead via 198.18.1.2 dev eth0 twice")
    );
    assert_eq!(
        append(&mut routing, &format!("{PREFIX} via 198.18.2.4 weight 3")).unwrap(),
        format!(
            "{PREFIX} nexthop via 198.18.1.2 dev eth0 weight 1 nexthop via 198.18.2.4 dev eth1 weight 3"
        )
    );
    assert_eq!(counts(&routing), [(2, 256), (4, 768)].into());
    append(&mut routing, &format!("{PREFIX} via 198.18.1.3")).unwrap();
    assert_eq!(routing.counts().routes4, 1);

    let del = |routing: &mut Routing<_>, via: Option<&str>, dev: Option<&str>| {
        let via = via.map(|via| via.parse().unwrap());
        let selector = Selector { via, dev: dev.map(str::to_owned), ..exact(PREFIX) };
        routing.delete(&selector).map(drop).map_err(|refusal| refusal.message)
    };
    assert_eq!(
        del(&mut routing, Some("198.18.1.9"), None).unwrap_err(),
        "no such route: 198.19.0.0/16 via 198.18.1.9; it is via 198.18.1.2 dev eth0, via 198.18.1.3 dev eth0, via 198.18.2.4 dev eth1 weight 3"
    );
    assert_eq!(
        del(&mut routing, None, Some("eth0")).unwrap_err(),
        "198.19.0.0/16: several next hops match (via 198.18.1.2 dev eth0, via 198.18.1.3 dev eth0): say which one with 'via' and 'dev', or take the route away without either"
    );
    del(&mut routing, None, Some("eth1")).unwrap();
    assert_eq!(counts(&routing), [(2, 512), (3, 512)].into());
    del(&mut routing, Some("198.18.1.2"), None).unwrap();
    assert_eq!(counts(&routing), [(3, 1024)].into());
    del(&mut routing, Some("198.18.1.3"), None).unwrap();
    assert_eq!(routing.counts().routes4, 0);
    assert_eq!(routing.table.lookup(TO.parse().unwrap()), None);
}

#[test]
fn bad_sets_are_refused_by_name_and_change_nothing() {
    let mut routing = with_neighbours();
    add(&mut routing, three([1, 1, 1])).unwrap();
    let before = routing.show(&Selector::default());
    let weighted = |weight| {
        let mut route = three([1, 1, 1]);
        Arc::make_mut(&mut route.next_hops)[1].weight = weight;
        route
    };
    let mut many = grammar("198.20.0.0/16 via 198.18.1.2");
    many.next_hops = (0..65)
        .map(|host| NextHop {
            via: Some(IpAddr::from([198, 18, 1, 100 + host])),
            dev: None,
            weight: 1,
        })
        .collect();
    let mut none = many.clone();
    none.next_hops = [].into();
    let mut twice = grammar("198.20.0.0/16 nexthop via 198.18.1.2 nexthop via 198.18.1.2 dev eth0");
    Arc::make_mut(&mut twice.next_hops)[0].weight = 3;
    for (route, existing, message) in [
        (weighted(0), Existing::Replace, "0 is not a weight: write a number from 1 to 256"),
        (weighted(257), Existing::Replace, "257 is not a weight: write a number from 1 to 256"),
        (
            twice,
            Existing::Refuse,
            "File exists: 198.20.0.0/16 would lead via 198.18.1.2 dev eth0 twice",
        ),
        (many, Existing::Refuse, "198.20.0.0/16: a route has at most 64 next hops"),
        (none, Existing::Refuse, "198.20.0.0/16: a route needs a next hop"),
        (
            grammar("198.20.0.0/16 nexthop via 198.18.1.2 nexthop dev eth1"),
            Existing::Refuse,
            "198.20.0.0/16: a route without a gateway leads nowhere else and is the same on all CPUs: give every next hop its 'via ADDRESS'",
        ),
        (
            three([1, 1, 1]),
            Existing::Refuse,
            "route 198.19.0.0/16 exists already (via 198.18.1.2 dev eth0, via 198.18.1.3 dev eth0, via 198.18.2.4 dev eth1): use 'route replace', or delete it first",
        ),
    ] {
        assert_eq!(routing.add(route, existing).unwrap_err().message, message);
        assert_eq!(routing.show(&Selector::default()), before);
    }
}

#[test]
fn more_sets_than_there_are_ids_is_an_error_until_one_is_given_back() {
    let mut routing = routing_with(Limits { sets: 3, ..limits(1000, 1000) });
    let to = |third: u8, host: u8| grammar(&format!("198.19.{third}.0/24 via 198.18.1.{host}"));
    for host in 2..5 {
        add(&mut routing, to(host, host)).unwrap();
    }
    add(&mut routing, to(9, 2)).unwrap();
    let before = routing.show(&Selector::default());
    let refusal = add(&mut routing, to(5, 5)).unwrap_err();
    assert_eq!(
        refusal.message,
        "all 3 sets of next hops are in use: let routes share them, or remove routes that need one of their own: nothing was changed"
    );
    let load = vec![to(10, 2), to(11, 7), to(12, 3)];
    assert!(routing.load(load, Existing::Refuse).is_err());
    assert_eq!(routing.show(&Selector::default()), before);
    assert_eq!(routing.counts().routes4, 4);
    assert_eq!(routing.table.graces, 0, "nothing waits to be given back");
    routing.delete(&exact("198.19.4.0/24")).unwrap();
    add(&mut routing, to(5, 5)).unwrap();
    assert_eq!(routing.table.graces, 1);
}

#[test]
fn more_groups_than_there_are_buckets_is_an_error_until_one_is_given_back() {
    let mut routing = routing_with(Limits { sets: 1000, ..limits(1000, 1000) });
    // 1,024 buckets each: 256 of these are all.
    let distinct = |number: u16| {
        let [third, fourth] = number.to_be_bytes();
        let mut route = grammar(&format!(
            "198.19.{third}.{fourth} nexthop via 198.18.1.2 weight 256 nexthop via 198.18.1.3"
        ));
        Arc::make_mut(&mut route.next_hops)[1].weight = 1 + number % 128 * 2;
        Arc::make_mut(&mut route.next_hops)[0].via =
            Some(IpAddr::from([198, 18, 1, 4 + third * 2 + fourth / 128]));
        route
    };
    for number in 0..256 {
        add(&mut routing, distinct(number)).unwrap();
    }
    let refusal = add(&mut routing, distinct(256)).unwrap_err();
    assert!(refusal.message.starts_with("all 262144 buckets are in use"), "{}", refusal.message);
    routing.delete(&exact("198.19.0.7")).unwrap();
    add(&mut routing, distinct(256)).unwrap();
}

#[test]
fn selectors_match_any_next_hop() {
    let mut routing = with_neighbours();
    add(&mut routing, three([1, 1, 1])).unwrap();
    add(&mut routing, grammar("198.20.0.0/16 via 198.18.1.2")).unwrap();
    let matching = |routing: &Routing<FakeTable>, via: Option<&str>, dev: Option<&str>| {
        let via = via.map(|via| via.parse().unwrap());
        routing.show(&Selector { via, dev: dev.map(str::to_owned), ..Selector::default() }).len()
    };
    assert_eq!(matching(&routing, Some("198.18.1.2"), None), 2);
    assert_eq!(matching(&routing, None, Some("eth1")), 1);
    assert_eq!(matching(&routing, Some("198.18.1.2"), Some("eth1")), 0, "no one next hop is both");
    let by_eth1 = Selector { dev: Some("eth1".to_owned()), ..Selector::default() };
    assert_eq!(routing.flush(&by_eth1), Ok(1));
    assert_eq!(routing.counts().routes4, 1);
    let mut routes: Vec<u64> = routing.neighbours().into_iter().map(|entry| entry.routes).collect();
    assert_eq!(routes.pop(), Some(1));
}
