//! Messages as `netlink-packet-route` writes them.

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

use super::*;
use crate::netlink::wire::push_attribute;

mod damaged;
mod links;
mod mirrored;
mod others;

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
