//! What messages of addresses, neighbours and routes tell.

use super::*;

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
        (RouteType::Local, 253, false),
        (RouteType::Unicast, 253, false),
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
