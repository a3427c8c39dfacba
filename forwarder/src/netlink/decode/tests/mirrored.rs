//! Routes of the main table, nexthop objects and rules, attribute by attribute.

use super::*;
use crate::{
    netlink::event::{KernelRoute, Next, Nexthop, NexthopWay, Position, Rule, Skip},
    paths::{Hop, Member},
};

/// Attributes behind a header.
fn body(header: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = header.to_vec();
    for (kind, value) in attributes {
        push_attribute(&mut body, *kind, value);
    }
    body
}

/// `rtmsg` of 198.19.0.0/16 in the main table: what else it says, and its attributes.
fn route_body(edit: impl Fn(&mut [u8]), attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut header = [AF_INET, 16, 0, 0, libc::RT_TABLE_MAIN, 4, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
    edit(&mut header);
    let destination: (u16, &[u8]) = (libc::RTA_DST, &[198, 19, 0, 0]);
    body(&header, &[&[destination], attributes].concat())
}

const OIF: (u16, &[u8]) = (libc::RTA_OIF, &[3, 0, 0, 0]);
const GATEWAY: (u16, &[u8]) = (libc::RTA_GATEWAY, &[198, 18, 0, 2]);

fn member(ifindex: u32, via: &str, weight: u16) -> Member {
    Member { hop: Hop { ifindex, via: via.parse().ok() }, weight }
}

fn read(body: &[u8]) -> Option<KernelRoute> {
    let (prefix, route) = kernel_route(body)?;
    assert_eq!(prefix, "198.19.0.0/16".parse().unwrap());
    Some(route)
}

#[test]
fn what_a_route_says_and_why_it_cannot_be_expressed() {
    let plain = |_: &mut [u8]| {};
    let inet6_via = [&[10, 0][..], &V6.octets()].concat();
    let mtu = body(&[], &[(2, &1300u32.to_ne_bytes())]);
    let window = body(&[], &[(3, &1300u32.to_ne_bytes())]);
    let lock = body(&[], &[(1, &4u32.to_ne_bytes())]);
    let mut expires = [0u8; 32];
    expires[8] = 1;
    let via = |via: &str| (vec![member(3, via, 1)], None);
    let left = |skip| (vec![member(3, "198.18.0.2", 1)], Some(skip));
    for (name, body, (members, skip)) in [
        ("plain", route_body(plain, &[OIF, GATEWAY]), via("198.18.0.2")),
        ("connected", route_body(plain, &[OIF]), via("")),
        ("IPv4 via IPv6", route_body(plain, &[OIF, (18, &inet6_via)]), via("2001:db8::1")),
        ("onlink", route_body(|it| it[8] = 4, &[OIF, GATEWAY]), via("198.18.0.2")),
        ("a window", route_body(plain, &[OIF, GATEWAY, (8, &window)]), via("198.18.0.2")),
        ("never expires", route_body(plain, &[OIF, GATEWAY, (12, &[0; 32])]), via("198.18.0.2")),
        ("encap", route_body(plain, &[OIF, GATEWAY, (22, &[])]), left(Skip::Encapsulation)),
        (
            "encap type",
            route_body(plain, &[OIF, GATEWAY, (21, &[1, 0])]),
            left(Skip::Encapsulation),
        ),
        ("tos", route_body(|it| it[3] = 4, &[OIF, GATEWAY]), left(Skip::Tos)),
        ("source", route_body(|it| it[2] = 8, &[OIF, GATEWAY]), left(Skip::Source)),
        ("mtu", route_body(plain, &[OIF, GATEWAY, (8, &mtu)]), left(Skip::Mtu)),
        ("lock", route_body(plain, &[OIF, GATEWAY, (8, &lock)]), left(Skip::Mtu)),
        ("expires", route_body(plain, &[OIF, GATEWAY, (12, &expires)]), left(Skip::Expires)),
        ("nat", route_body(|it| it[7] = libc::RTN_NAT, &[OIF, GATEWAY]), left(Skip::Type)),
        ("throw", route_body(|it| it[7] = libc::RTN_THROW, &[]), (vec![], Some(Skip::Throw))),
        ("leads nowhere", route_body(plain, &[]), (vec![], Some(Skip::Type))),
    ] {
        let route = read(&body).unwrap();
        assert_eq!((route.next, route.skip), (Next::Members(members), skip), "{name}");
    }
    let metric = route_body(plain, &[OIF, (libc::RTA_PRIORITY, &7u32.to_ne_bytes())]);
    let route = read(&metric).unwrap();
    assert_eq!((route.metric, route.protocol, route.tos), (7, 4, 0));
    let object = route_body(plain, &[OIF, GATEWAY, (30, &5u32.to_ne_bytes())]);
    assert_eq!(read(&object).unwrap().next, Next::Object(5));
}

#[test]
fn other_tables_and_what_lookups_made_are_no_routes() {
    for edit in [
        |it: &mut [u8]| it[4] = 253,
        // RTM_F_CLONED
        |it: &mut [u8]| it[9] = 2,
        |it: &mut [u8]| it[0] = 7,
        |it: &mut [u8]| it[1] = 33,
    ] {
        assert_eq!(read(&route_body(edit, &[OIF, GATEWAY])), None);
    }
    let table = (libc::RTA_TABLE, &1000u32.to_ne_bytes()[..]);
    assert_eq!(read(&route_body(|_| {}, &[OIF, GATEWAY, table])), None);
}

#[test]
fn several_next_hops_are_read_with_their_weights_up_to_one_that_lies() {
    let hop = |ifindex: u32, weight: u8, attributes: &[(u16, &[u8])]| {
        let mut hop = body(&[0, 0, 0, weight - 1], &[]);
        hop.extend(ifindex.to_ne_bytes());
        for (kind, value) in attributes {
            push_attribute(&mut hop, *kind, value);
        }
        let length = u16::try_from(hop.len()).unwrap();
        hop[..2].copy_from_slice(&length.to_ne_bytes());
        hop
    };
    let second: (u16, &[u8]) = (libc::RTA_GATEWAY, &[198, 18, 1, 2]);
    let several = [hop(4, 3, &[second]), hop(3, 1, &[GATEWAY])].concat();
    let route = |several: &[u8]| read(&route_body(|_| {}, &[(libc::RTA_MULTIPATH, several)]));
    let members = vec![member(3, "198.18.0.2", 1), member(4, "198.18.1.2", 3)];
    let both = route(&several).unwrap();
    assert_eq!((both.next, both.skip), (Next::Members(members), None));

    let one = Next::Members(vec![member(4, "198.18.1.2", 3)]);
    assert_eq!(route(&several[..several.len() - 1]).unwrap().next, one);
    let encap = [hop(4, 3, &[second]), hop(3, 1, &[GATEWAY, (22, &[])])].concat();
    assert_eq!(route(&encap).unwrap().skip, Some(Skip::Encapsulation));
}

#[test]
fn where_a_new_route_stands_is_in_its_flags() {
    let body = route_body(|_| {}, &[OIF, GATEWAY]);
    let (prefix, route) = kernel_route(&body).unwrap();
    for (flags, position) in [
        (0x400, Position::First),
        (0x400 | NLM_F_APPEND, Position::Last),
        (NLM_F_REPLACE, Position::Replace),
    ] {
        let event = Event::Route { prefix, route: route.clone(), position };
        let change = change_of(&(libc::RTM_NEWROUTE, body.clone()), flags);
        assert_eq!(change, Some(Change::Event(event)));
    }
    let gone = change_of(&(libc::RTM_DELROUTE, body), 0);
    assert_eq!(gone, Some(Change::Event(Event::RouteGone { prefix, route })));
}

#[test]
fn nexthop_objects_are_hops_groups_or_left() {
    let id = (1u16, &7u32.to_ne_bytes()[..]);
    let oif: (u16, &[u8]) = (5, &[3, 0, 0, 0]);
    let gateway: (u16, &[u8]) = (6, &[198, 18, 0, 2]);
    // Weights less one; the second is 300.
    let group = [1u8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 43, 1, 0, 0];
    for (attributes, way) in [
        (vec![id, oif, gateway], NexthopWay::Hop(member(3, "198.18.0.2", 1).hop)),
        (vec![id, oif], NexthopWay::Hop(member(3, "", 1).hop)),
        (vec![id, (2, &group[..])], NexthopWay::Group(vec![(1, 1), (2, 300)])),
        (vec![id, (4, &[][..])], NexthopWay::Skip(Skip::Blackhole)),
        (vec![id, oif, gateway, (8, &[][..])], NexthopWay::Skip(Skip::Encapsulation)),
        (vec![id, (11, &[][..])], NexthopWay::Skip(Skip::Type)),
        (vec![id], NexthopWay::Skip(Skip::Type)),
    ] {
        let body = body(&[AF_INET, 0, 0, 4, 0, 0, 0, 0], &attributes);
        let object = Nexthop { id: 7, way };
        assert_eq!(nexthop(&body).as_ref(), Some(&object));
        let change = change_of(&(104, body.clone()), 0);
        assert_eq!(change, Some(Change::Event(Event::Nexthop(object))));
        let gone = change_of(&(105, body), 0);
        assert_eq!(gone, Some(Change::Event(Event::NexthopGone { id: 7 })));
    }
    assert_eq!(nexthop(&body(&[AF_INET, 0, 0, 0, 0, 0, 0, 0], &[oif])), None, "no id");
}

/// `fib_rule_hdr`: family, lengths of destination and source, tos, table, two that are not used,
/// action, flags.
fn rule_body(table: u8, flags: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    body(&[AF_INET, 0, 0, 0, table, 0, 0, 1, flags, 0, 0, 0], attributes)
}

#[test]
fn rules_that_may_send_packets_another_way_are_told_from_those_that_cannot() {
    let priority = |number: u32| number.to_ne_bytes();
    let (local, main, odd) = (priority(0), priority(32766), priority(50));
    let own = |priority| Some(RuleKind::Own { is_ipv4: true, priority });
    let other = |text: &str| {
        Some(RuleKind::Other(Rule { is_ipv4: true, priority: 50, text: text.to_owned() }))
    };
    let mark = 7u32.to_ne_bytes();
    let none = u32::MAX.to_ne_bytes();
    for (name, body, expected) in [
        ("local", rule_body(255, 0, &[(6, &local)]), own(0)),
        ("main", rule_body(254, 0, &[(6, &main), (14, &none), (21, &[2])]), own(32766)),
        ("main first", rule_body(254, 0, &[(6, &odd)]), other("from all lookup 254")),
        ("of this host", rule_body(99, 0, &[(6, &odd), (3, b"lo\0")]), Some(RuleKind::Harmless)),
        ("marked", rule_body(99, 0, &[(6, &odd), (10, &mark)]), Some(RuleKind::Harmless)),
        (
            "not marked",
            rule_body(99, 2, &[(6, &odd), (10, &mark)]),
            other("from all fwmark 0x7 lookup 99"),
        ),
        (
            "no mark",
            rule_body(99, 0, &[(6, &odd), (10, &[0; 4])]),
            other("from all fwmark 0x0 lookup 99"),
        ),
        ("VRF", rule_body(0, 0, &[(6, &odd), (19, &[1])]), Some(RuleKind::Harmless)),
        (
            "interface",
            rule_body(99, 0, &[(6, &odd), (3, b"eth0\0")]),
            other("from all iif eth0 lookup 99"),
        ),
        ("what is new", rule_body(254, 0, &[(6, &odd), (77, &[1])]), other("from all lookup 254")),
    ] {
        assert_eq!(rule(&body), expected, "{name}");
    }
    let new = rule_body(254, 0, &[(6, &main), (77, &[1])]);
    assert!(matches!(rule(&new), Some(RuleKind::Other(_))), "main, for some packets alone");
    assert_eq!(change_of(&(libc::RTM_NEWRULE, new.clone()), 0), Some(Change::Rules));
    assert_eq!(change_of(&(libc::RTM_DELRULE, new), 0), Some(Change::Rules));
}
