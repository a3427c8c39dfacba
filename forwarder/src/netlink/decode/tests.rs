//! Messages as `netlink-packet-route` writes them, whole and damaged.

use std::net::{Ipv4Addr, Ipv6Addr};

use netlink_packet_core::NetlinkSerializable;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{
        InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp, Prop,
    },
    neighbour::{
        NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
        NeighbourState as Nud,
    },
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType},
};
use proptest::prelude::*;

use super::*;
use crate::netlink::wire::push_attribute;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];
const V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn encode(message: &RouteNetlinkMessage) -> (u16, Vec<u8>) {
    let mut body = vec![0; message.buffer_len()];
    message.serialize(&mut body);
    (message.message_type(), body)
}

fn change_of((kind, body): &(u16, Vec<u8>), flags: u16) -> Option<Change> {
    change(&Message { kind: *kind, flags, sequence: 0, port: 0, body })
}

fn decode(message: RouteNetlinkMessage) -> Option<Change> {
    change_of(&encode(&message), 0)
}

fn link_message() -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = 1001;
    message.header.link_layer_type = LinkLayerType::Ether;
    message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    message.attributes = vec![
        LinkAttribute::IfName("eth1".into()),
        LinkAttribute::Address(MAC.to_vec()),
        LinkAttribute::Mtu(9000),
        LinkAttribute::Controller(5),
        LinkAttribute::Link(12),
        LinkAttribute::LinkNetNsId(3),
        LinkAttribute::PropList(vec![
            Prop::AltIfName("enp1s0".into()),
            Prop::AltIfName("lan".into()),
        ]),
        LinkAttribute::ParentDevName("0000:01:00.0".into()),
        LinkAttribute::ParentDevBusName("pci".into()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth)]),
        LinkAttribute::Xdp(vec![LinkXdp::DrvProgId(41), LinkXdp::SkbProgId(42)]),
    ];
    message
}

fn address_message(family: AddressFamily, attributes: Vec<AddressAttribute>) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family;
    message.header.index = 3;
    message.header.prefix_len = 24;
    message.attributes = attributes;
    message
}

fn neighbour_message(family: AddressFamily, address: NeighbourAddress) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = 3;
    message.header.state = Nud::Reachable;
    message.attributes = vec![
        NeighbourAttribute::Destination(address),
        NeighbourAttribute::LinkLayerAddress(MAC.to_vec()),
    ];
    message
}

fn route_message(kind: RouteType, table: u8) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = 32;
    message.header.kind = kind;
    message.header.table = table;
    message.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(V4)),
        RouteAttribute::Oif(3),
        RouteAttribute::PrefSource(RouteAddress::Inet(V4)),
    ];
    message
}

#[test]
fn a_link_is_told_in_full() {
    let link = Link {
        ifindex: 1001,
        name: "eth1".into(),
        mac: Some(MAC),
        mtu: 9000,
        up: true,
        carrier: true,
        controller: Some(5),
        kind: Some("veth".into()),
        xdp_programs: vec![41, 42],
    };
    let message = RouteNetlinkMessage::NewLink(link_message());
    assert_eq!(
        link_details(&encode(&message).1),
        Some(LinkDetails {
            link: link.clone(),
            loopback: false,
            lower: Some(12),
            lower_namespace: Some(3),
            alternative_names: vec!["enp1s0".into(), "lan".into()],
            device: Some(("pci".into(), "0000:01:00.0".into())),
            tap_offload: false,
            xdp: vec![
                XdpAttachment { mode: XdpMode::Native, program: 41 },
                XdpAttachment { mode: XdpMode::Generic, program: 42 },
            ],
        })
    );
    assert_eq!(decode(message), Some(Change::Event(Event::Link(link))));
    assert_eq!(
        decode(RouteNetlinkMessage::DelLink(link_message())),
        Some(Change::Event(Event::LinkGone { ifindex: 1001 }))
    );
}

#[test]
fn what_a_link_is_not() {
    let mut loopback = link_message();
    loopback.header.link_layer_type = LinkLayerType::Loopback;
    loopback.header.flags = LinkFlags::Loopback;
    loopback.attributes.retain(|attribute| {
        matches!(
            attribute,
            LinkAttribute::IfName(_) | LinkAttribute::Mtu(_) | LinkAttribute::Address(_)
        )
    });
    let details = link_details(&encode(&RouteNetlinkMessage::NewLink(loopback)).1).unwrap();
    assert!(details.loopback && !details.link.up && !details.link.carrier);
    assert_eq!((details.link.mac, details.link.controller, details.link.kind), (None, None, None));
    assert_eq!((details.lower, details.lower_namespace, details.xdp), (None, None, vec![]));
}

#[test]
fn a_tap_tells_whether_it_has_a_virtio_header() {
    let mut message = link_message();
    message.attributes.retain(|attribute| !matches!(attribute, LinkAttribute::LinkInfo(_)));
    let plain = encode(&RouteNetlinkMessage::NewLink(message)).1;
    for (kind, flag, expected) in [("tun", 1, true), ("tun", 0, false), ("veth", 1, false)] {
        let (mut data, mut info, mut body) = (Vec::new(), Vec::new(), plain.clone());
        push_attribute(&mut data, IFLA_TUN_VNET_HDR, &[flag]);
        push_attribute(&mut info, libc::IFLA_INFO_KIND, kind.as_bytes());
        push_attribute(&mut info, libc::IFLA_INFO_DATA, &data);
        push_attribute(&mut body, libc::IFLA_LINKINFO, &info);
        assert_eq!(link_details(&body).unwrap().tap_offload, expected, "{kind} {flag}");
    }
}

#[test]
fn a_bridge_that_lets_a_port_go_does_not_end_the_link() {
    let mut port = link_message();
    port.header.interface_family = AddressFamily::Bridge;
    assert_eq!(decode(RouteNetlinkMessage::DelLink(port.clone())), None);
    assert_eq!(decode(RouteNetlinkMessage::NewLink(port)), None);
}

#[test]
fn the_only_program_is_told_by_older_kernels_without_its_place() {
    let mut message = link_message();
    message.attributes.pop();
    message.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::ProgId(9)]));
    let details = link_details(&encode(&RouteNetlinkMessage::NewLink(message)).1).unwrap();
    assert_eq!(details.xdp, [XdpAttachment { mode: XdpMode::Unknown, program: 9 }]);
    assert_eq!(details.link.xdp_programs, [9]);
}

#[test]
fn an_address_is_our_own_and_not_the_peers() {
    let peer = Ipv4Addr::new(198, 18, 9, 9);
    let cases = [
        (
            "IPv4",
            AddressFamily::Inet,
            vec![AddressAttribute::Address(V4.into()), AddressAttribute::Local(V4.into())],
            "198.18.0.1/24",
        ),
        (
            "IPv4, point to point",
            AddressFamily::Inet,
            vec![AddressAttribute::Address(peer.into()), AddressAttribute::Local(V4.into())],
            "198.18.0.1/24",
        ),
        (
            "IPv6",
            AddressFamily::Inet6,
            vec![AddressAttribute::Address(V6.into())],
            "2001:db8::1/24",
        ),
    ];
    for (name, family, attributes, expected) in cases {
        let expected = Address { ifindex: 3, address: expected.parse().unwrap() };
        let message = address_message(family, attributes);
        assert_eq!(
            decode(RouteNetlinkMessage::NewAddress(message.clone())),
            Some(Change::Event(Event::Address(expected))),
            "{name}"
        );
        assert_eq!(
            decode(RouteNetlinkMessage::DelAddress(message)),
            Some(Change::Event(Event::AddressGone(expected))),
            "{name}"
        );
    }
}

#[test]
fn neighbours_are_told_in_each_state() {
    let states = [
        (Nud::Incomplete, NeighbourState::Incomplete),
        (Nud::Reachable, NeighbourState::Reachable),
        (Nud::Stale, NeighbourState::Stale),
        (Nud::Delay, NeighbourState::Delay),
        (Nud::Probe, NeighbourState::Probe),
        (Nud::Failed, NeighbourState::Failed),
        (Nud::Noarp, NeighbourState::NoArp),
        (Nud::Permanent, NeighbourState::Permanent),
        (Nud::None, NeighbourState::None),
        (Nud::Other(0x4000), NeighbourState::None),
    ];
    let addresses = [
        (AddressFamily::Inet, NeighbourAddress::Inet(V4), IpAddr::from(V4)),
        (AddressFamily::Inet6, NeighbourAddress::Inet6(V6), IpAddr::from(V6)),
    ];
    for (nud, state) in states {
        for (family, destination, address) in addresses.clone() {
            let mut message = neighbour_message(family, destination);
            message.header.state = nud;
            assert_eq!(
                decode(RouteNetlinkMessage::NewNeighbour(message.clone())),
                Some(Change::Event(Event::Neighbour(Neighbour {
                    ifindex: 3,
                    address,
                    mac: Some(MAC),
                    state,
                })))
            );
            message.attributes.pop();
            assert_eq!(
                decode(RouteNetlinkMessage::DelNeighbour(message)),
                Some(Change::Event(Event::NeighbourGone { ifindex: 3, address }))
            );
        }
    }
}

#[test]
fn entries_of_bridges_proxies_and_groups_are_no_neighbours() {
    let bridge = neighbour_message(AddressFamily::Bridge, NeighbourAddress::Inet(V4));
    let mut proxy = neighbour_message(AddressFamily::Inet, NeighbourAddress::Inet(V4));
    proxy.header.flags = NeighbourFlags::Proxy;
    let group = NeighbourAddress::Inet6("ff02::16".parse().unwrap());
    let group = neighbour_message(AddressFamily::Inet6, group);
    for message in [bridge, proxy, group] {
        assert_eq!(decode(RouteNetlinkMessage::NewNeighbour(message.clone())), None);
        assert_eq!(decode(RouteNetlinkMessage::DelNeighbour(message)), None);
    }
}

#[test]
fn local_routes_are_those_of_the_local_table_that_deliver_to_us() {
    let cases = [
        (RouteType::Local, 255, true),
        (RouteType::Broadcast, 255, true),
        (RouteType::Anycast, 255, true),
        (RouteType::Multicast, 255, true),
        (RouteType::Unicast, 255, false),
        (RouteType::BlackHole, 255, false),
        (RouteType::Local, 254, false),
        (RouteType::Unicast, 254, false),
    ];
    for (kind, table, ours) in cases {
        let message = route_message(kind, table);
        let route = LocalRoute {
            prefix: "198.18.0.1".parse().unwrap(),
            kind: u8::from(kind),
            tos: 0,
            ifindex: Some(3),
            priority: None,
            source: Some(V4.into()),
        };
        let name = format!("{kind:?} in table {table}");
        let added = decode(RouteNetlinkMessage::NewRoute(message.clone()));
        assert_eq!(added, ours.then_some(Change::LocalRoute(route)), "{name}");
        let encoded = encode(&RouteNetlinkMessage::NewRoute(message.clone()));
        let replaced = change_of(&encoded, NLM_F_REPLACE);
        assert_eq!(replaced, (table == 255).then_some(Change::LocalRouteReplaced), "{name}");
        let removed = decode(RouteNetlinkMessage::DelRoute(message));
        assert_eq!(removed, ours.then_some(Change::LocalRouteGone(route)), "{name}");
    }
}

#[test]
fn the_tables_number_may_not_fit_the_header() {
    let mut message = route_message(RouteType::Local, 255);
    message.attributes.push(RouteAttribute::Table(1000));
    assert_eq!(decode(RouteNetlinkMessage::NewRoute(message.clone())), None);
    message.header.table = 0;
    message.attributes.pop();
    message.attributes.push(RouteAttribute::Table(255));
    assert!(decode(RouteNetlinkMessage::NewRoute(message)).is_some());
}

#[test]
fn a_default_route_names_all_its_interfaces() {
    let mut message = route_message(RouteType::Unicast, 254);
    message.header.destination_prefix_length = 0;
    message.attributes = vec![RouteAttribute::Oif(7)];
    let interfaces = |message: &RouteMessage| {
        default_route_interfaces(&encode(&RouteNetlinkMessage::NewRoute(message.clone())).1)
    };
    assert_eq!(interfaces(&message), Some(vec![7]));

    let hop = |interface_index| {
        let mut hop = RouteNextHop::default();
        hop.interface_index = interface_index;
        hop.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet(V4))];
        hop
    };
    message.attributes = vec![RouteAttribute::MultiPath(vec![hop(8), hop(9)])];
    assert_eq!(interfaces(&message), Some(vec![8, 9]));
    message.header.destination_prefix_length = 1;
    assert_eq!(interfaces(&message), None);
    message.header.destination_prefix_length = 0;
    message.header.kind = RouteType::BlackHole;
    assert_eq!(interfaces(&message), None);
}

/// One of each kind.
fn real_messages() -> Vec<(u16, Vec<u8>)> {
    let address = address_message(
        AddressFamily::Inet,
        vec![AddressAttribute::Address(V4.into()), AddressAttribute::Local(V4.into())],
    );
    let hop = RouteNextHop::default();
    let mut several = route_message(RouteType::Local, 255);
    several.attributes.push(RouteAttribute::MultiPath(vec![hop.clone(), hop]));
    [
        RouteNetlinkMessage::NewLink(link_message()),
        RouteNetlinkMessage::DelLink(link_message()),
        RouteNetlinkMessage::NewAddress(address.clone()),
        RouteNetlinkMessage::DelAddress(address),
        RouteNetlinkMessage::NewRoute(route_message(RouteType::Local, 255)),
        RouteNetlinkMessage::DelRoute(several),
        RouteNetlinkMessage::NewNeighbour(neighbour_message(
            AddressFamily::Inet6,
            NeighbourAddress::Inet6(V6),
        )),
        RouteNetlinkMessage::DelNeighbour(neighbour_message(
            AddressFamily::Inet,
            NeighbourAddress::Inet(V4),
        )),
    ]
    .iter()
    .map(encode)
    .collect()
}

fn decode_in_every_way(message: &(u16, Vec<u8>)) -> Option<Change> {
    let body = &message.1;
    let _ = (link_details(body), address(body), neighbour(body), local_route(body));
    let _ = (route_interfaces(body), default_route_interfaces(body));
    let _ = (neighbour_flags(body), neighbour_extended_flags(body));
    change_of(message, 0)
}

#[test]
fn a_message_cut_off_anywhere_is_read_without_a_panic() {
    for (kind, whole) in real_messages() {
        assert!(change_of(&(kind, whole.clone()), 0).is_some(), "kind {kind}");
        for length in 0..12.min(whole.len()) {
            assert_eq!(decode_in_every_way(&(kind, whole[..length].to_vec())), None);
        }
        for length in 12..whole.len() {
            decode_in_every_way(&(kind, whole[..length].to_vec()));
        }
    }
}

proptest! {
    #[test]
    fn damaged_messages_are_read_without_a_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in any::<prop::sample::Index>(),
    ) {
        let (kind, mut body) = which.get(&real_messages()).clone();
        for (at, value) in edits {
            *at.get_mut(&mut body) = value;
        }
        body.truncate(length.index(body.len() + 1));
        decode_in_every_way(&(kind, body));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(
        kind in 0u16..100,
        body in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        decode_in_every_way(&(kind, body));
    }
}
