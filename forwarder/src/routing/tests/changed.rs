//! Sets of next hops that a command changes: who keeps its flows.

use super::{
    several::{PREFIX, counts, failed, grammar, owners, reachable, three, with_neighbours},
    table::Writes,
    *,
};

/// How many of 1,024 flows have moved, from which next hop and to which.
fn moved(before: &[u8], after: &[u8]) -> Vec<(u8, u8, usize)> {
    let mut moves = std::collections::BTreeMap::new();
    for (was, is) in before.iter().zip(after).filter(|(was, is)| was != is) {
        *moves.entry((*was, *is)).or_default() += 1;
    }
    moves.into_iter().map(|((was, is), count)| (was, is, count)).collect()
}

/// What a command has moved.
fn moved_by(
    routing: &mut Routing<FakeTable>,
    command: impl FnOnce(&mut Routing<FakeTable>),
) -> Vec<(u8, u8, usize)> {
    let before = owners(routing);
    command(routing);
    moved(&before, &owners(routing))
}

fn append(routing: &mut Routing<FakeTable>, words: &str) {
    routing.add(grammar(&format!("{PREFIX} {words}")), Existing::Append).unwrap();
}

fn replace(routing: &mut Routing<FakeTable>, words: &str) {
    routing.add(grammar(&format!("{PREFIX} {words}")), Existing::Replace).unwrap();
}

fn del(routing: &mut Routing<FakeTable>, via: &str) {
    let selector = Selector { via: via.parse().ok(), ..exact(PREFIX) };
    routing.delete(&selector).unwrap();
}

#[test]
fn one_more_takes_its_share_and_one_that_goes_gives_it_back() {
    let mut routing = with_neighbours();
    append(&mut routing, "via 198.18.1.2");
    assert_eq!(moved_by(&mut routing, |it| append(it, "via 198.18.2.4")), [(2, 4, 512)]);
    // 85 of 256 buckets, four flows each here.
    let third = moved_by(&mut routing, |it| append(it, "via 198.18.1.3"));
    assert_eq!(third, [(2, 3, 168), (4, 3, 172)]);
    assert_eq!(counts(&routing), [(2, 344), (3, 340), (4, 340)].into());

    let gone = moved_by(&mut routing, |it| del(it, "198.18.1.3"));
    assert_eq!(gone, [(3, 2, 168), (3, 4, 172)]);
    assert_eq!(moved_by(&mut routing, |it| del(it, "198.18.1.2")), [(2, 4, 512)]);
}

#[test]
fn each_of_three_can_go_and_the_others_keep_theirs() {
    for (gone, via) in [(2, "198.18.1.2"), (3, "198.18.1.3"), (4, "198.18.2.4")] {
        let mut routing = with_neighbours();
        add(&mut routing, three([1, 1, 1])).unwrap();
        let had = counts(&routing)[&gone];
        let moves = moved_by(&mut routing, |it| del(it, via));
        assert!(moves.iter().all(|(was, ..)| *was == gone), "{moves:?}");
        assert_eq!(moves.iter().map(|(.., count)| count).sum::<usize>(), had);
        assert!(counts(&routing).values().all(|count| *count == 512));
    }
}

#[test]
fn a_set_that_replaces_another_keeps_what_both_have() {
    let mut routing = with_neighbours();
    replace(&mut routing, "nexthop via 198.18.1.2 nexthop via 198.18.1.3");
    let moves = moved_by(&mut routing, |routing| {
        replace(routing, "nexthop via 198.18.1.3 nexthop via 198.18.2.4");
    });
    assert_eq!(moves, [(2, 4, 512)]);
    // Another weight: from one half to a quarter.
    let moves = moved_by(&mut routing, |routing| {
        replace(routing, "nexthop via 198.18.1.3 nexthop via 198.18.2.4 weight 3");
    });
    assert_eq!(moves, [(3, 4, 256)]);
    // Nothing in common: as if it were new.
    let moves = moved_by(&mut routing, |routing| {
        replace(routing, "nexthop via 198.18.1.2 nexthop via 198.18.1.9");
    });
    assert_eq!(moves.iter().map(|(.., count)| count).sum::<usize>(), 1024);
}

#[test]
fn flows_whose_next_hop_has_failed_stay_where_they_have_found_another() {
    let mut routing = with_neighbours();
    replace(&mut routing, "nexthop via 198.18.1.2 nexthop via 198.18.1.3");
    routing.apply([failed(ETH0, "198.18.1.3")]).unwrap();
    // Half of what the only one had.
    let moves = moved_by(&mut routing, |it| append(it, "via 198.18.2.4"));
    assert_eq!(moves, [(2, 4, 512)]);
    // It comes back, and takes a third: as many of each as they have too many.
    let moves = moved_by(&mut routing, |routing| {
        routing.apply([Event::Neighbour(reachable(ETH0, "198.18.1.3", 3))]).unwrap();
    });
    assert_eq!(moves.iter().map(|(.., count)| count).sum::<usize>(), 340, "{moves:?}");
    assert!(moves.iter().all(|(_, is, _)| *is == 3), "{moves:?}");
    assert_eq!(counts(&routing), [(2, 344), (3, 340), (4, 340)].into());
}

#[test]
fn a_set_that_is_there_already_is_left_as_it_is() {
    let mut routing = with_neighbours();
    add(&mut routing, three([1, 1, 1])).unwrap();
    let before = owners(&routing);
    let two = grammar("198.20.0.0/16 nexthop via 198.18.1.2 nexthop via 198.18.1.3");
    add(&mut routing, two).unwrap();
    routing.table.writes = Writes::default();
    let third = grammar("198.20.0.0/16 via 198.18.2.4");
    routing.add(third, Existing::Append).unwrap();
    assert_eq!(routing.table.writes, Writes { prefixes: 1, ..Writes::default() });
    assert_eq!(owners(&routing), before);
}

#[test]
fn what_changes_for_one_cpu_moves_no_flow_of_the_others() {
    let mut routing = with_neighbours();
    append(&mut routing, "via 198.18.1.2");
    append(&mut routing, "via 198.18.2.4");
    append(&mut routing, "via 198.18.1.3");
    let before = owners(&routing);
    let on_5 = |routing: &Routing<FakeTable>| -> Vec<u8> {
        let ways = routing.table.spread(5, "198.19.0.1".parse().unwrap()).unwrap();
        ways.into_iter().map(|way| way.unwrap().destination_mac[5]).collect()
    };
    replace(&mut routing, "cpu 5 nexthop via 198.18.1.2 nexthop via 198.18.1.3");
    assert_eq!(owners(&routing), before);
    // It had those of all: the two that are left keep theirs.
    let moves = moved(&before, &on_5(&routing));
    assert_eq!(moves, [(4, 2, 168), (4, 3, 172)]);
    let own = on_5(&routing);
    let moves = moved_by(&mut routing, |it| del(it, "198.18.1.3"));
    assert!(moves.iter().all(|(was, ..)| *was == 3), "{moves:?}");
    assert_eq!(on_5(&routing), own);
}

#[test]
fn where_buckets_are_scarce_a_set_takes_no_more_than_it_needs() {
    let mut routing = routing_with(Limits { sets: 1000, ..limits(1000, 1000) });
    for (address, byte) in [("198.18.1.2", 2), ("198.18.1.3", 3)] {
        routing.apply([Event::Neighbour(reachable(ETH0, address, byte))]).unwrap();
    }
    // 1,024 buckets each, of which there are 256 times as many.
    let large = "nexthop via 198.18.1.2 nexthop via 198.18.1.3 nexthop via 198.18.1.4 weight 256";
    replace(&mut routing, large);
    for number in 0..254_u8 {
        let via = IpAddr::from([198, 18, 1 + number / 127, 10 + number % 127]);
        let words =
            format!("198.20.0.{number} nexthop via {via} weight 256 nexthop via 198.18.1.2");
        add(&mut routing, grammar(&words)).unwrap();
    }
    let small = grammar("198.21.0.0/16 nexthop via 198.18.1.2 nexthop via 198.18.2.2");
    add(&mut routing, small).unwrap();
    del(&mut routing, "198.18.1.4");
    assert_eq!(counts(&routing), [(2, 512), (3, 512)].into());
    let writes = routing.table.writes;
    assert_eq!(routing.table.buckets.len(), 1024 * 255 + 128 + 128, "{writes:?}");
}
