use std::{collections::BTreeSet, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{
    abi::{ROUTE_FILTERED, ROUTE_IDS_FIRST, ROUTE_LOCAL, ROUTE_NONE, ROUTE_PUNT, RouteWord},
    lookup::Unsteered,
    testing::{NaiveTables, Random, SteerTo, checksum, finish_ipv4, ipv4, ipv6, random_frame},
};

mod groups;
mod sources;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOP: [u8; 6] = [2, 0, 0, 0, 0, 2];
const EGRESS: [u8; 6] = [2, 0, 0, 0, 0, 3];
const INGRESS: u32 = 4;
const PORT: u32 = 1001;
const MTU: u32 = 1400;

const FROM4: [u8; 4] = [198, 18, 1, 9];
const TO4: [u8; 4] = [198, 18, 2, 9];
const FROM6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
const TO6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];

/// Third octet of the destination → what becomes of it.
fn tables() -> NaiveTables {
    let adjacency =
        Adjacency { port: PORT, mtu: MTU, destination_mac: HOP, source_mac: EGRESS, flags: 0 };
    let words = [
        (ROUTE_PUNT, RouteWord::unusable(Reason::Punt)),
        (ROUTE_LOCAL, RouteWord::unusable(Reason::Local)),
        (ROUTE_NONE, RouteWord::unusable(Reason::NoRoute)),
        (ROUTE_FILTERED, RouteWord::unusable(Reason::Filtered)),
        (ROUTE_IDS_FIRST, RouteWord::via(1)),
        (ROUTE_IDS_FIRST + 1, RouteWord::via(2)),
        (ROUTE_IDS_FIRST + 2, RouteWord::via(3)),
        (ROUTE_IDS_FIRST + 3, RouteWord::unusable(Reason::NeighbourPending)),
        (ROUTE_IDS_FIRST + 4, RouteWord::unusable(Reason::NeighbourFailed)),
        (ROUTE_IDS_FIRST + 5, RouteWord::unusable(Reason::EgressDown)),
        (ROUTE_IDS_FIRST + 6, RouteWord::unusable(Reason::NoXmit)),
    ];
    let mut tables = NaiveTables {
        locals4: Vec::from([([198, 18, 1, 1], 32), ([198, 18, 1, 255], 32)]),
        words: words.into(),
        adjacencies: [
            (1, adjacency),
            (2, Adjacency { port: INGRESS, ..adjacency }),
            (3, Adjacency { port: 77, ..adjacency }),
        ]
        .into(),
        ports: Vec::from([PORT, INGRESS]),
        ..NaiveTables::default()
    };
    let routes = [ROUTE_PUNT, ROUTE_LOCAL].into_iter().chain(ROUTE_IDS_FIRST..);
    for (octet, route) in (0..9).zip(routes) {
        tables.routes4.insert(([198, 18, octet, 0], 24), route);
        let prefix = [0x20, 1, 0x0d, 0xb8, 0, octet, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        tables.routes6.insert((prefix, 48), route);
    }
    tables.routes4.insert(([198, 18, 1, 1], 32), ROUTE_LOCAL);
    tables.routes4.insert(([198, 18, 9, 0], 24), ROUTE_FILTERED);
    tables
}

fn walk(frame: &mut [u8], tables: &NaiveTables) -> Verdict {
    let interface = Interface { slot: 1, mac: MAC, flags: 0 };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    forward(&mut Packet::from_slice(frame), &ingress, tables, &Unsteered)
}

/// Frames that differ from one that is forwarded in a single point.
fn ipv4_with(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = ipv4(MAC, FROM4, TO4, 64, 18);
    change(&mut frame);
    if frame.len() >= 34 {
        finish_ipv4(&mut frame);
    }
    frame
}

fn ipv6_with(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = ipv6(MAC, FROM6, TO6, 64, 18);
    change(&mut frame);
    frame
}

fn put(at: usize, bytes: &'static [u8]) -> impl FnOnce(&mut Vec<u8>) {
    move |frame| frame[at..at + bytes.len()].copy_from_slice(bytes)
}

#[test]
fn what_is_left_to_the_kernel_and_why() {
    use Reason::*;
    let bad_checksum = {
        let mut frame = ipv4(MAC, FROM4, TO4, 64, 18);
        frame[24] ^= 1;
        frame
    };
    let rows: Vec<(&str, Vec<u8>, Reason)> = Vec::from([
        ("an empty frame", Vec::new(), Truncated),
        ("half an Ethernet header", ipv4_with(|f| f.truncate(13)), Truncated),
        ("half an IPv4 header", ipv4_with(|f| f.truncate(33)), Truncated),
        ("half an IPv6 header", ipv6_with(|f| f.truncate(53)), Truncated),
        ("an IPv4 packet cut short", ipv4_with(|f| f.truncate(59)), Truncated),
        ("an IPv6 packet cut short", ipv6_with(|f| f.truncate(79)), Truncated),
        ("ARP", ipv4_with(put(12, &[8, 6])), NotIp),
        ("an 802.3 length", ipv4_with(put(12, &[0, 46])), NotIp),
        ("a VLAN tag", ipv4_with(put(12, &[0x81, 0])), Vlan),
        ("a service VLAN tag", ipv4_with(put(12, &[0x88, 0xa8])), Vlan),
        ("a broadcast MAC", ipv4_with(put(0, &[0xff; 6])), GroupMac),
        ("a multicast MAC", ipv6_with(put(0, &[0x33, 0x33, 0, 0, 0, 1])), GroupMac),
        ("somebody else's MAC", ipv4_with(put(5, &[9])), ForeignMac),
        ("IPv6 in an IPv4 frame", ipv4_with(put(14, &[0x65])), BadHeader),
        ("an IPv4 header of 16 bytes", ipv4_with(put(14, &[0x44])), BadHeader),
        ("a total length below the header's", ipv4_with(put(16, &[0, 19])), BadHeader),
        ("IPv4 in an IPv6 frame", ipv6_with(put(14, &[0x45])), BadHeader),
        ("IPv4 options", ipv4_with(put(14, &[0x46])), IpOptions),
        ("a wrong checksum", bad_checksum, BadChecksum),
        ("a hop-by-hop header", ipv6_with(put(20, &[0])), HopByHop),
        ("a TTL of 1", ipv4_with(put(22, &[1])), TtlExpired),
        ("a TTL of 0", ipv4_with(put(22, &[0])), TtlExpired),
        ("a hop limit of 1", ipv6_with(put(21, &[1])), TtlExpired),
        ("a hop limit of 0", ipv6_with(put(21, &[0])), TtlExpired),
        ("from 0.0.0.0", ipv4_with(put(26, &[0; 4])), MartianSource),
        ("from loopback", ipv4_with(put(26, &[127, 0, 0, 1])), MartianSource),
        ("from multicast", ipv4_with(put(26, &[224, 0, 0, 5])), MartianSource),
        ("from broadcast", ipv4_with(put(26, &[255; 4])), MartianSource),
        ("from IPv4 link-local", ipv4_with(put(26, &[169, 254, 1, 1])), MartianSource),
        ("from ::", ipv6_with(put(22, &[0; 16])), MartianSource),
        ("from IPv6 link-local", ipv6_with(put(22, &[0xfe, 0x80])), MartianSource),
        ("from IPv6 multicast", ipv6_with(put(22, &[0xff, 2])), MartianSource),
        ("from our own address", ipv4_with(put(26, &[198, 18, 1, 1])), OwnSource),
        ("from our broadcast address", ipv4_with(put(26, &[198, 18, 1, 255])), OwnSource),
        ("to 0.0.0.0", ipv4_with(put(30, &[0; 4])), MartianDestination),
        ("to loopback", ipv4_with(put(30, &[127, 0, 0, 1])), MartianDestination),
        ("to IPv4 link-local", ipv4_with(put(30, &[169, 254, 1, 1])), MartianDestination),
        ("to IPv6 link-local", ipv6_with(put(38, &[0xfe, 0x80])), MartianDestination),
        ("to multicast", ipv4_with(put(30, &[239, 1, 1, 1])), Multicast),
        ("to limited broadcast", ipv4_with(put(30, &[255; 4])), Multicast),
        ("to IPv6 multicast", ipv6_with(put(38, &[0xff, 5])), Multicast),
        ("to ourselves", ipv4_with(put(32, &[1, 1])), Local),
        ("to ourselves in IPv6", ipv6_with(put(43, &[1])), Local),
        ("to nowhere", ipv4_with(put(31, &[19])), NoRoute),
        ("to nowhere in IPv6", ipv6_with(put(42, &[1])), NoRoute),
        ("along a route for the kernel", ipv4_with(put(32, &[0])), Punt),
        ("where a family is stopped", ipv4_with(put(32, &[9])), Filtered),
        ("back where it came from", ipv4_with(put(32, &[3])), SameInterface),
        ("back where it came from in IPv6", ipv6_with(put(43, &[3])), SameInterface),
        ("to a port that is gone", ipv4_with(put(32, &[4])), NoPort),
        ("to a neighbour not known yet", ipv4_with(put(32, &[5])), NeighbourPending),
        ("to a neighbour that is silent", ipv6_with(put(43, &[6])), NeighbourFailed),
        ("to an egress that is down", ipv4_with(put(32, &[7])), EgressDown),
        ("to an egress that takes no frames", ipv4_with(put(32, &[8])), NoXmit),
        ("a byte above the MTU", ipv4(MAC, FROM4, TO4, 64, 1373), TooBig),
        ("an IPv6 byte above the MTU", ipv6(MAC, FROM6, TO6, 64, 1353), TooBig),
        ("padded beyond the MTU", ipv4_with(|f| f.resize(1415, 0)), Padded),
    ]);
    let tables = tables();
    for (what, frame, reason) in &rows {
        let mut walked = frame.clone();
        assert_eq!(walk(&mut walked, &tables), Verdict::Pass(*reason), "{what}");
        assert_eq!(walked, *frame, "{what}: changed");
    }

    // The reasons that are not here have tests of their own, here or (`UnknownInterface`) where
    // the interface is looked up.
    let seen: BTreeSet<Reason> = rows.iter().map(|row| row.2).collect();
    let elsewhere = [
        UnknownInterface,
        Frags,
        NoWorker,
        LeaseExpired,
        NoIpv6,
        Discard,
        ForwardingOff,
        RpFilter,
        Enslaved,
    ];
    for reason in Reason::ALL {
        assert_ne!(seen.contains(&reason), elsewhere.contains(&reason), "{reason:?}");
    }
}

#[test]
fn what_is_forwarded() {
    let redirect = Verdict::Redirect { port: PORT, route: ROUTE_IDS_FIRST };
    let rows: Vec<(&str, Vec<u8>)> = Vec::from([
        ("a small packet", ipv4_with(|_| {})),
        ("a small IPv6 packet", ipv6_with(|_| {})),
        ("with a TTL of 2", ipv4_with(put(22, &[2]))),
        ("with a hop limit of 2", ipv6_with(put(21, &[2]))),
        ("as long as the MTU", ipv4(MAC, FROM4, TO4, 64, 1372)),
        ("IPv6 as long as the MTU", ipv6(MAC, FROM6, TO6, 64, 1352)),
        ("padded to the MTU", ipv4_with(|f| f.resize(1414, 0))),
        (
            "a header alone",
            ipv4_with(|f| {
                f.truncate(34);
                f[17] = 20;
            }),
        ),
        ("the first fragment", ipv4_with(put(20, &[0x20, 0]))),
        ("a later fragment", ipv4_with(put(20, &[0, 5]))),
        ("an IPv6 fragment", ipv6_with(put(20, &[44]))),
        ("from a unique local address", ipv6_with(put(22, &[0xfd]))),
    ]);
    let tables = tables();
    for (what, frame) in rows {
        let mut walked = frame.clone();
        assert_eq!(walk(&mut walked, &tables), redirect, "{what}");
        assert_forwarded(&frame, &walked);
    }
}

#[test]
fn class_e_is_forwarded_as_linux_does() {
    let mut tables = tables();
    tables.routes4.insert(([240, 0, 0, 0], 4), ROUTE_IDS_FIRST);
    let mut frame = ipv4_with(put(30, &[240, 0, 0, 1]));
    assert!(matches!(walk(&mut frame, &tables), Verdict::Redirect { .. }));
}

#[test]
fn without_a_lease_everything_goes_up() {
    let tables = NaiveTables { lease_expired: true, ..tables() };
    let frame = ipv4_with(|_| {});
    let mut walked = frame.clone();
    assert_eq!(walk(&mut walked, &tables), Verdict::Pass(Reason::LeaseExpired));
    assert_eq!(walked, frame);
}

#[test]
fn what_comes_in_by_a_port_of_a_bridge_is_the_bridges() {
    let interface = Interface { slot: 1, mac: MAC, flags: INTERFACE_ENSLAVED };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    for frame in [ipv4_with(|_| {}), ipv6_with(|_| {})] {
        let mut walked = frame.clone();
        let mut packet = Packet::from_slice(&mut walked);
        let verdict = forward(&mut packet, &ingress, &tables(), &Unsteered);
        assert_eq!((verdict, walked), (Verdict::Pass(Reason::Enslaved), frame));
    }
}

#[test]
fn where_linux_has_no_ipv6_there_is_none() {
    let interface = Interface { slot: 1, mac: MAC, flags: INTERFACE_NO_IPV6 };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    let walk =
        |frame: &mut [u8]| forward(&mut Packet::from_slice(frame), &ingress, &tables(), &Unsteered);
    assert_eq!(walk(&mut ipv6_with(|_| {})), Verdict::Pass(Reason::NoIpv6));
    assert!(matches!(walk(&mut ipv4_with(|_| {})), Verdict::Redirect { .. }));
}

#[test]
fn where_linux_does_not_forward_a_family_it_goes_up() {
    let walk = |flags, frame: &mut [u8]| {
        let interface = Interface { slot: 1, mac: MAC, flags };
        let ingress = Ingress { ifindex: INGRESS, interface: &interface };
        forward(&mut Packet::from_slice(frame), &ingress, &tables(), &Unsteered)
    };
    let off = Verdict::Pass(Reason::ForwardingOff);
    let is_forwarded = |verdict| matches!(verdict, Verdict::Redirect { .. });
    let [v4, v6] = [INTERFACE_NO_FORWARDING4, INTERFACE_NO_FORWARDING6];
    assert_eq!(walk(v4, &mut ipv4_with(|_| {})), off);
    assert!(is_forwarded(walk(v4, &mut ipv6_with(|_| {}))));
    assert_eq!(walk(v6, &mut ipv6_with(|_| {})), off);
    assert!(is_forwarded(walk(v6, &mut ipv4_with(|_| {}))));
    // Which of the two does not matter to anybody, but it is always the same.
    let both = v6 | INTERFACE_NO_IPV6;
    assert_eq!(walk(both, &mut ipv6_with(|_| {})), Verdict::Pass(Reason::NoIpv6));
}

#[test]
fn frags_leave_only_by_a_port_that_sends_them() {
    let mut tables = tables();
    for (flags, verdict) in [
        (0, Verdict::Pass(Reason::Frags)),
        (ADJACENCY_FRAGS, Verdict::Redirect { port: PORT, route: ROUTE_IDS_FIRST }),
    ] {
        tables.adjacencies.get_mut(&1).unwrap().flags = flags;
        let mut frame = ipv4(MAC, FROM4, TO4, 64, 1000);
        let len = frame.len();
        let mut packet = Packet::from_first_buffer(&mut frame[..100], len);
        let interface = Interface { slot: 1, mac: MAC, flags: 0 };
        let ingress = Ingress { ifindex: INGRESS, interface: &interface };
        assert_eq!(forward(&mut packet, &ingress, &tables, &Unsteered), verdict);
    }
}

#[test]
fn only_what_will_be_redirected_takes_the_hop() {
    let tables = tables();
    let interface = Interface { slot: 1, mac: MAC, flags: 0 };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    let steer = |frame: &mut [u8], has_queue| {
        let steering = SteerTo { cpu: 5, has_queue };
        forward(&mut Packet::from_slice(frame), &ingress, &tables, &steering)
    };
    for frame in [ipv4_with(|_| {}), ipv6_with(|_| {})] {
        let mut walked = frame.clone();
        assert_eq!(steer(&mut walked, true), Verdict::Steer { cpu: 5 });
        assert_eq!(steer(&mut walked, false), Verdict::Pass(Reason::NoWorker));
        assert_eq!(walked, frame);
    }
    let to_us = &mut ipv4_with(put(32, &[1, 1]));
    assert_eq!(steer(to_us, true), Verdict::Pass(Reason::Local));
    let pending = &mut ipv4_with(put(32, &[5]));
    assert_eq!(steer(pending, true), Verdict::Pass(Reason::NeighbourPending));
    let too_big = &mut ipv4(MAC, FROM4, TO4, 64, 1373);
    assert_eq!(steer(too_big, true), Verdict::Pass(Reason::TooBig));
}

/// The hash that steering asks for, as seen by a table that records it.
fn hash_of(frame: &mut [u8]) -> u32 {
    struct Record(core::cell::Cell<u32>);
    impl Steering for Record {
        fn worker(&self, hash: impl FnOnce() -> u32) -> Option<u32> {
            self.0.set(hash());
            None
        }
        fn steer(&self, _: u32) -> bool {
            false
        }
    }
    let record = Record(core::cell::Cell::new(0));
    let interface = Interface { slot: 1, mac: MAC, flags: 0 };
    let ingress = Ingress { ifindex: INGRESS, interface: &interface };
    let verdict = forward(&mut Packet::from_slice(frame), &ingress, &tables(), &record);
    assert!(matches!(verdict, Verdict::Redirect { .. }));
    record.0.get()
}

#[test]
fn fragments_and_portless_packets_are_steered_by_addresses_alone() {
    let whole = hash_of(&mut ipv4_with(|_| {}));
    let other_ports = hash_of(&mut ipv4_with(put(34, &[7, 7])));
    assert_ne!(whole, other_ports, "ports tell flows apart");

    let first = hash_of(&mut ipv4_with(put(20, &[0x20, 0])));
    let later = hash_of(&mut ipv4_with(put(20, &[0, 5])));
    let later_with_other_payload = hash_of(&mut ipv4_with(|frame| {
        frame[20..22].copy_from_slice(&[0, 5]);
        frame[34..38].copy_from_slice(&[9; 4]);
    }));
    assert_eq!((first, later), (later, later_with_other_payload));

    let icmp = hash_of(&mut ipv4_with(put(23, &[1])));
    assert_eq!(icmp, first, "no ports, so the addresses decide");
    let reserved_bit = hash_of(&mut ipv4_with(put(20, &[0xc0, 0])));
    assert_eq!(reserved_bit, whole, "neither DF nor the reserved bit makes a fragment");
    // UDP whose total length ends before its ports: what follows is padding.
    let padding = |filler: u8| {
        hash_of(&mut ipv4_with(|frame| {
            frame[17] = 23;
            frame[34..38].fill(filler);
        }))
    };
    assert_eq!(padding(1), padding(2));
    let six = hash_of(&mut ipv6_with(|_| {}));
    let six_fragment = hash_of(&mut ipv6_with(put(20, &[44])));
    assert_ne!(six, six_fragment);
}

/// Only TTL, checksum and MACs differ, and they are right.
fn assert_forwarded(sent: &[u8], got: &[u8]) {
    assert_eq!((&got[0..6], &got[6..12]), (&HOP[..], &EGRESS[..]));
    let mut expected = sent.to_vec();
    expected[..12].copy_from_slice(&got[..12]);
    if sent[12] == 0x08 {
        expected[22] -= 1;
        assert_eq!(checksum(&got[14..34]), 0, "checksum of {got:02x?}");
        expected[24..26].copy_from_slice(&got[24..26]);
    } else {
        expected[21] -= 1;
    }
    assert_eq!(got, expected);
}

proptest! {
    #[test]
    fn any_bytes_get_a_verdict(mut frame in proptest::collection::vec(any::<u8>(), 0..128)) {
        walk(&mut frame, &tables());
    }

    #[test]
    fn a_frame_may_start_at_an_odd_address(seed: u64) {
        let frame = some_frame(seed);
        let mut even = frame.clone();
        let mut odd = Vec::from([0; 1]);
        odd.extend(&frame);
        let verdict = walk(&mut even, &tables());
        prop_assert_eq!(walk(&mut odd[1..], &tables()), verdict);
        prop_assert_eq!(&odd[1..], &even[..]);
    }
}

fn some_frame(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    random_frame(&mut random, MAC, &[TO4, [198, 18, 3, 3]], &[TO6])
}

/// Edge-biased: the rule "check, then write" falls only where a check comes late.
#[test]
fn a_frame_is_forwarded_rightly_or_not_touched() {
    let tables = tables();
    let (mut forwarded, mut reasons) = (0, BTreeSet::new());
    for seed in 0..40_000 {
        let sent = some_frame(seed);
        let mut walked = sent.clone();
        match walk(&mut walked, &tables) {
            Verdict::Redirect { .. } => {
                assert_forwarded(&sent, &walked);
                forwarded += 1;
            }
            Verdict::Pass(reason) => {
                assert_eq!(walked, sent, "seed {seed}: {reason:?}");
                reasons.insert(reason);
            }
            Verdict::Steer { .. } => unreachable!("steering is off"),
        }
    }
    assert!(forwarded > 8_000, "only {forwarded} were forwarded");
    assert!(reasons.len() >= 14, "only {reasons:?}");
}
