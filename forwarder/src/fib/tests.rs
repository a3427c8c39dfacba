use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use forwarder_common::{
    abi::{ROUTE_FILTERED, ROUTE_IDS_MAX, ROUTE_NONE},
    fib::words,
};
use ipnet::IpNet;
use proptest::prelude::*;
use zerocopy::FromZeros as _;

use super::*;

mod grace;
mod oracle;
mod shapes;

use oracle::Oracle;

#[derive(Clone)]
pub(super) struct Plain(Arc<[AtomicU32]>);

impl AsRef<[AtomicU32]> for Plain {
    fn as_ref(&self) -> &[AtomicU32] {
        &self.0
    }
}

pub(super) fn fib(units: u32) -> Fib<Plain> {
    Fib::new(Plain(zeroed(units).into()))
}

fn zeroed(units: u32) -> Box<[AtomicU32]> {
    <[AtomicU32]>::new_box_zeroed_with_elems(words(units) as usize).unwrap()
}

pub(super) fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

pub(super) fn no_grace() -> bool {
    panic!("a grace period was waited for")
}

pub(super) fn at_once() -> bool {
    true
}

fn lookup(fib: &Fib<Plain>, address: &str) -> RouteId {
    reader::lookup(fib.memory.as_ref(), address.parse().unwrap())
}

#[test]
fn the_longest_prefix_wins_at_every_depth() {
    let mut fib = fib(1 << 12);
    let routes = [
        ("0.0.0.0/0", 10),
        ("198.0.0.0/8", 11),
        ("198.18.0.0/15", 12),
        ("198.18.2.0/24", 13),
        ("198.18.2.128/25", 14),
        ("198.18.2.200/32", 15),
        ("::/0", 20),
        ("2000::/3", 21),
        ("2001:db8::/32", 22),
        ("2001:db8:0:1::/64", 23),
        ("2001:db8::1/128", 24),
        ("fd00::/8", 25),
        ("fd00::/20", 26),
        ("2002:c612:200::/40", 27),
        ("fe80::1/128", 28),
    ];
    let changes: Vec<Change> = routes.map(|(at, id)| (prefix(at), Some(id))).to_vec();
    fib.apply(&changes, &mut no_grace).unwrap();
    for (address, route) in [
        ("1.1.1.1", 10),
        ("198.1.1.1", 11),
        ("198.19.1.1", 12),
        ("198.18.2.1", 13),
        ("198.18.2.129", 14),
        ("198.18.2.200", 15),
        ("1::1", 20),
        ("3fff::1", 21),
        ("2001:db8:ffff::1", 22),
        ("2001:db8:0:1:ffff::1", 23),
        ("2001:db8::1", 24),
        ("2001:db8::2", 22),
        ("fdff::1", 25),
        ("fd00:f00::", 26),
        ("fd00:1000::", 25),
        ("2002:c612:2ff::1", 27),
        ("fe80::1", 28),
        ("fe80::2", 20),
    ] {
        assert_eq!(lookup(&fib, address), route, "{address}");
    }
    assert_eq!((fib.count(Family::Inet), fib.count(Family::Inet6)), (6, 9));
}

#[test]
fn an_empty_fib_knows_nothing_and_memory_nobody_wrote_punts() {
    let mut fib = fib(1 << 12);
    assert_eq!((lookup(&fib, "198.18.2.1"), lookup(&fib, "fd00::1")), (ROUTE_NONE, ROUTE_NONE));
    assert_eq!(fib.usage().used, 0);
    fib.apply(&[(prefix("198.18.2.0/24"), None)], &mut no_grace).unwrap();
    assert_eq!((fib.count(Family::Inet), fib.usage().used), (0, 0));

    let zeroed = zeroed(1 << 12);
    for address in ["198.18.2.1", "2001:db8::1", "fd00::1"] {
        assert_eq!(reader::lookup(&zeroed, address.parse().unwrap()), ROUTE_PUNT, "{address}");
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let mut fib = fib(1 << 10);
    let mut oracle = Oracle::default();
    let mut full = false;
    for subnet in 0..=u8::MAX {
        let prefix = Prefix::host(IpAddr::from([198, subnet, 1, 1]));
        fib.pool.release();
        let before = (fib.usage(), fib.count(Family::Inet));
        let changes =
            [(prefix, Some(7)), (Prefix::host(IpAddr::from([10, 0, 0, subnet])), Some(8))];
        if fib.apply(&changes, &mut at_once) == Ok(()) {
            oracle.apply(&changes);
            continue;
        }
        assert_eq!((fib.usage(), fib.count(Family::Inet)), before);
        assert_eq!((fib.route(prefix), fib.route(changes[1].0)), (None, None));
        oracle.check(&fib, oracle.edges());
        full = true;
    }
    assert!(full, "the test needs less memory");
    oracle.empty(&mut fib);
}

#[test]
fn a_full_memory_takes_this_hosts_addresses_and_lets_everything_go() {
    let mut fib = fib(1 << 15);
    // Nodes that each become another when half of their prefixes go.
    let host = |subnet: u16, host| {
        let [high, low] = subnet.to_be_bytes();
        Prefix::host(IpAddr::from([198, high, low, host]))
    };
    let prefixes: Vec<Prefix> =
        (0..2100).flat_map(|subnet| [1, 9].map(|last| host(subnet, last))).collect();
    let pairs: Vec<Change> = prefixes.iter().map(|prefix| (*prefix, Some(7))).collect();
    fib.apply(&pairs, &mut at_once).unwrap();
    let mut others = (1..).map(|subnet| prefix(&format!("2001:db8:{subnet:x}::2/128")));
    while fib.apply(&[(others.next().unwrap(), Some(7))], &mut at_once).is_ok() {}
    let own = prefix("2001:db8::1/128");
    fib.apply(&[(own, Some(ROUTE_LOCAL))], &mut at_once).unwrap();
    assert_eq!(lookup(&fib, "2001:db8::1"), ROUTE_LOCAL);

    // One of each pair: nearly every node is written anew, and there is no room for all of them.
    let half: Vec<Change> = prefixes.iter().step_by(2).map(|prefix| (*prefix, None)).collect();
    assert_eq!(fib.try_apply(&half), Err(FibFull), "or the test sees nothing");
    fib.apply(&half, &mut at_once).unwrap();
    assert_eq!(fib.count(Family::Inet), prefixes.len() as u64 / 2);
    assert_eq!((lookup(&fib, "198.0.0.1"), lookup(&fib, "198.0.0.9")), (ROUTE_NONE, 7));
}

#[test]
fn a_replacement_that_does_not_fit_changes_nothing() {
    let mut fib = fib(1 << 10);
    let mut oracle = Oracle::default();
    let changes = [(prefix("198.18.2.0/24"), Some(7)), (prefix("2001:db8::/48"), Some(8))];
    fib.apply(&changes, &mut no_grace).unwrap();
    oracle.apply(&changes);
    let before = fib.usage();
    let many = (0..=u8::MAX).map(|i| (Prefix::host(IpAddr::from([198, i, 1, 1])), 9));
    assert_eq!(fib.replace(many, &mut at_once), Err(FibFull));
    assert_eq!(fib.usage(), before);
    oracle.check(&fib, oracle.edges());
}

#[test]
fn a_replacement_leaves_nothing_of_what_was_there() {
    let mut fib = fib(1 << 14);
    for round in 0..5_u8 {
        let mut oracle = Oracle::default();
        let prefixes: Vec<(Prefix, RouteId)> = (0..200_u8)
            .map(|i| (Prefix::host(IpAddr::from([10, round, i % 3, i])), 3 + u32::from(i % 7)))
            .chain([(prefix("2001:db8::/33"), 9), (prefix("::/0"), u32::from(round) + 3)])
            .collect();
        fib.replace(prefixes.iter().copied(), &mut at_once).unwrap();
        for (prefix, id) in &prefixes {
            oracle.apply(&[(*prefix, Some(*id))]);
        }
        oracle.check(&fib, oracle.edges());
        assert_eq!(lookup(&fib, &format!("10.{}.0.0", round.wrapping_sub(1))), ROUTE_NONE);
        assert_eq!(fib.prefixes().len(), oracle.len());
    }
    fib.replace([], &mut at_once).unwrap();
    assert_eq!(fib.usage().used, 0);
}

/// The runs stay where they are, but one becomes a child, for whose reference there is no word.
#[test]
fn a_node_that_gets_its_first_child_is_written_anew() {
    let mut fib = fib(1 << 12);
    for (at, route) in [("198.18.2.0/24", 7), ("198.18.2.128/25", 8)] {
        fib.apply(&[(prefix(at), Some(route))], &mut no_grace).unwrap();
    }
    assert_eq!((lookup(&fib, "198.18.2.1"), lookup(&fib, "198.18.2.129")), (7, 8));
    fib.apply(&[(prefix("198.18.2.128/25"), None)], &mut no_grace).unwrap();
    assert_eq!((lookup(&fib, "198.18.2.1"), lookup(&fib, "198.18.2.129")), (7, 7));
}

#[test]
fn a_family_that_is_all_punt_leaves_the_other_alone() {
    let mut fib = fib(1 << 12);
    let changes = [(prefix("198.18.2.0/24"), Some(7)), (prefix("2001:db8::/48"), Some(8))];
    fib.apply(&changes, &mut no_grace).unwrap();
    let found = |fib: &Fib<Plain>| (lookup(fib, "198.18.2.1"), lookup(fib, "2001:db8::1"));
    fib.set_punt_all(Family::Inet, true);
    assert_eq!(found(&fib), (ROUTE_PUNT, 8));
    fib.set_punt_all(Family::Inet6, true);
    fib.replace(changes.map(|(prefix, _)| (prefix, 9)), &mut at_once).unwrap();
    assert_eq!(found(&fib), (ROUTE_PUNT, ROUTE_PUNT));
    fib.set_punt_all(Family::Inet, false);
    assert_eq!(found(&fib), (9, ROUTE_PUNT));
    fib.set_punt_all(Family::Inet6, false);
    assert_eq!(found(&fib), (9, 9));
}

#[test]
fn a_family_that_is_filtered_says_so_whatever_else_stops_it() {
    let mut fib = fib(1 << 12);
    let changes = [(prefix("198.18.2.0/24"), Some(7)), (prefix("2001:db8::/48"), Some(8))];
    fib.apply(&changes, &mut no_grace).unwrap();
    let found = |fib: &Fib<Plain>| (lookup(fib, "198.18.2.1"), lookup(fib, "2001:db8::1"));
    fib.set_filtered(Family::Inet6, true);
    assert_eq!(found(&fib), (7, ROUTE_FILTERED));
    fib.set_punt_all(Family::Inet6, true);
    fib.set_filtered(Family::Inet, true);
    fib.replace(changes.map(|(prefix, _)| (prefix, 9)), &mut at_once).unwrap();
    assert_eq!(found(&fib), (ROUTE_FILTERED, ROUTE_FILTERED));
    fib.set_filtered(Family::Inet6, false);
    assert_eq!(found(&fib), (ROUTE_FILTERED, ROUTE_PUNT));
    fib.set_punt_all(Family::Inet6, false);
    fib.set_filtered(Family::Inet, false);
    assert_eq!(found(&fib), (9, 9));
}

#[test]
fn route_ids_have_their_whole_range() {
    let mut fib = fib(1 << 12);
    for id in [0, 1, ROUTE_IDS_MAX - 1] {
        fib.apply(&[(prefix("198.18.2.0/24"), Some(id))], &mut no_grace).unwrap();
        assert_eq!(lookup(&fib, "198.18.2.1"), id);
    }
}
