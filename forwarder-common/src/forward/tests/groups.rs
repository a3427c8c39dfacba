//! Routes with several next hops.

use super::*;
use crate::abi::{
    BucketRange, INTERFACE_HASH_ADDRESSES4, INTERFACE_HASH_ADDRESSES6, ROUTE_IDS_MAX,
};

const GROUP_START: u32 = 128;
const SIZE: u32 = 64;
/// Interface indexes of the two members, the first of which has three buckets of four.
const PORTS: [u32; 2] = [PORT, 1002];

/// All of 198.18.2.0/24 and 2001:db8:2::/48 by a group.
fn grouped() -> NaiveTables {
    let mut tables = tables();
    let first = tables.adjacencies[&1];
    tables.adjacencies.insert(9, Adjacency { port: PORTS[1], ..first });
    tables.ports.push(PORTS[1]);
    tables.words.insert(ROUTE_IDS_FIRST, RouteWord::group(BucketRange::new(GROUP_START, SIZE)));
    let member = |bucket: u32| if bucket % 4 == 3 { 9 } else { 1 };
    tables.buckets = (GROUP_START..GROUP_START + SIZE).map(|at| (at, member(at))).collect();
    tables
}

fn flow(source_port: u16, protocol: u8) -> Vec<u8> {
    ipv4_with(|frame| {
        frame[23] = protocol;
        frame[34..36].copy_from_slice(&source_port.to_be_bytes());
    })
}

fn port(frame: &[u8], tables: &NaiveTables) -> u32 {
    let mut walked = frame.to_vec();
    match walk(&mut walked, tables) {
        Verdict::Redirect { port, route: ROUTE_IDS_FIRST } => {
            assert_forwarded(frame, &walked);
            port
        }
        verdict => panic!("{verdict:?}"),
    }
}

#[test]
fn flows_are_spread_over_the_buckets_and_each_keeps_to_its_own() {
    const FLOWS: u16 = 4096;
    let tables = grouped();
    for protocol in [6, 17] {
        let ports: Vec<u32> = (0..FLOWS).map(|it| port(&flow(it, protocol), &tables)).collect();
        let again: Vec<u32> = (0..FLOWS).map(|it| port(&flow(it, protocol), &tables)).collect();
        assert_eq!(ports, again);
        let first = ports.iter().filter(|port| **port == PORTS[0]).count();
        assert!(first.abs_diff(3 * 1024) < 200, "{first} of {FLOWS} by the first");
    }
    let udp = (0..FLOWS).map(|it| port(&flow(it, 17), &tables));
    let tcp = (0..FLOWS).map(|it| port(&flow(it, 6), &tables));
    assert!(udp.ne(tcp), "the protocol is part of the flow");
}

#[test]
fn where_linux_looks_at_addresses_alone_all_flows_of_two_hosts_go_together() {
    let tables = grouped();
    let by = |flags, port: u16| {
        let interface = Interface { slot: 1, mac: MAC, flags };
        let ingress = Ingress { ifindex: INGRESS, interface: &interface };
        let frame = &mut flow(port, 17);
        match forward(&mut Packet::from_slice(frame), &ingress, &tables, &Unsteered) {
            Verdict::Redirect { port, .. } => port,
            verdict => panic!("{verdict:?}"),
        }
    };
    let distinct = |flags| (0..64).map(|port| by(flags, port)).collect::<BTreeSet<u32>>().len();
    assert_eq!((distinct(0), distinct(INTERFACE_HASH_ADDRESSES4)), (2, 1));
    assert_eq!(distinct(INTERFACE_HASH_ADDRESSES6), 2, "of the other family");
}

#[test]
fn another_seed_spreads_the_flows_of_one_member_again() {
    let first = grouped();
    let second = NaiveTables { hash_seed: 0x5eed_5eed_5eed_5eed, ..grouped() };
    let by_first: Vec<Vec<u8>> =
        (0..4096).map(|it| flow(it, 17)).filter(|it| port(it, &first) == PORTS[0]).collect();
    let both = by_first.iter().filter(|frame| port(frame, &second) == PORTS[0]).count();
    let even = by_first.len() * 3 / 4;
    assert!(both.abs_diff(even) < even / 10, "{both} of {}", by_first.len());
}

#[test]
fn all_fragments_of_a_packet_leave_by_one_member() {
    let tables = grouped();
    let mut seen = BTreeSet::new();
    for host in 0..64 {
        let fragment = |flags: [u8; 2], filler: u8| {
            ipv4_with(|frame| {
                frame[33] = host;
                frame[20..22].copy_from_slice(&flags);
                frame[34..38].fill(filler);
            })
        };
        let first = port(&fragment([0x20, 0], 1), &tables);
        assert_eq!(port(&fragment([0x20, 185], 2), &tables), first);
        assert_eq!(port(&fragment([1, 114], 3), &tables), first);
        seen.insert(first);
    }
    assert_eq!(seen.len(), 2, "or the test sees nothing");
}

#[test]
fn a_bucket_without_an_adjacency_is_left_to_the_kernel() {
    let frame = ipv4_with(|_| {});
    let punt = |change: fn(&mut NaiveTables)| {
        let mut tables = grouped();
        change(&mut tables);
        let mut walked = frame.clone();
        assert_eq!(walk(&mut walked, &tables), Verdict::Pass(Reason::Punt));
        assert_eq!(walked, frame);
    };
    punt(|tables| tables.buckets.clear());
    punt(|tables| tables.buckets.values_mut().for_each(|bucket| *bucket = 0));
    punt(|tables| tables.buckets.values_mut().for_each(|bucket| *bucket = 77));
    // An adjacency of this index would be no way either.
    punt(|tables| {
        let some = tables.adjacencies[&1];
        tables.adjacencies.insert(0, some);
        tables.buckets.values_mut().for_each(|bucket| *bucket = 0);
    });
    punt(|tables| {
        tables.words.insert(ROUTE_IDS_FIRST, RouteWord::group(BucketRange::new(u32::MAX, SIZE)));
    });
    punt(|tables| {
        tables.routes4.insert((TO4, 32), ROUTE_IDS_MAX - 1);
    });
}
