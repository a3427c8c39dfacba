//! What a link's message tells.

use super::*;

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
            takes_below: false,
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
fn a_link_tells_whether_it_takes_what_the_one_below_would_get() {
    let mut message = link_message();
    message.attributes.retain(|attribute| !matches!(attribute, LinkAttribute::LinkInfo(_)));
    let plain = encode(&RouteNetlinkMessage::NewLink(message)).1;
    for (kind, mode, expected) in [
        ("ipvlan", 0_u32, true),
        ("ipvtap", 1, true),
        ("macvlan", 1, false),
        ("macvlan", 4, false),
        ("macvlan", 8, true),
        ("macvtap", 16, true),
        ("veth", 8, false),
        ("vlan", 8, false),
    ] {
        let (mut data, mut info, mut body) = (Vec::new(), Vec::new(), plain.clone());
        push_attribute(&mut data, 1, &mode.to_ne_bytes());
        push_attribute(&mut info, libc::IFLA_INFO_KIND, kind.as_bytes());
        push_attribute(&mut info, libc::IFLA_INFO_DATA, &data);
        push_attribute(&mut body, libc::IFLA_LINKINFO, &info);
        assert_eq!(link_details(&body).unwrap().takes_below, expected, "{kind} {mode}");
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
