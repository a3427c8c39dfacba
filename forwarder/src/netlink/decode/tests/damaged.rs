//! Whatever a message is, it is read without a panic.

use proptest::prelude::*;

use super::*;

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
        RouteNetlinkMessage::NewRoute(route_message(RouteType::Unicast, 254)),
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
    let _ = (kernel_route(body), nexthop(body), rule(body), linux_answer(body));
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
