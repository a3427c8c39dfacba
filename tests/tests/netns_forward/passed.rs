//! What must be left to Linux: each frame is counted under its reason, and none gets through.

use std::{collections::BTreeSet, net::Ipv6Addr, slice::from_ref};

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::{Frame, Mac, ether_type, protocol},
    kernel::Forwarded,
    lab::{Lab, host_mac, router_mac, router4, router6},
    require, skip,
    testbed::{Testbed, beyond4, beyond6},
};

/// The MTU of the link to B.
const NARROW: u16 = 1400;
/// A multiple of four bytes that say nothing.
const NO_OPERATIONS: [u8; 4] = [1; 4];
/// An IPv6 extension header of options that say nothing, behind its first byte.
const PADDING_OPTIONS: [u8; 7] = [0, 1, 4, 0, 0, 0, 0];

/// Reasons that a frame alone does not bring about, or that no lab can. Their tests are elsewhere.
const NOT_BY_A_FRAME: [Reason; 16] = [
    Reason::UnknownInterface,
    Reason::Punt,
    Reason::NeighbourPending,
    Reason::NeighbourFailed,
    Reason::EgressDown,
    Reason::NoPort,
    Reason::Frags,
    Reason::NoWorker,
    Reason::LeaseExpired,
    Reason::NoXmit,
    Reason::NoIpv6,
    Reason::Discard,
    Reason::ForwardingOff,
    Reason::RpFilter,
    Reason::Filtered,
    Reason::Enslaved,
];

struct Row {
    what: &'static str,
    frame: Vec<u8>,
    reason: Reason,
}

#[test]
fn native() {
    every_row("--mode native --steer off");
}

#[test]
fn native_steered() {
    require!(skip::cpus(2));
    every_row("--mode native --steer cpus=0,1");
}

#[test]
fn generic() {
    every_row("--mode generic --steer off");
}

#[test]
fn there_is_a_row_for_every_reason() {
    let rows = rows();
    let found = rows.iter().map(|row| row.reason).chain(NOT_BY_A_FRAME).collect::<BTreeSet<_>>();
    assert_eq!(found, Reason::ALL.into_iter().collect());
}

/// Linux does not forward, so that what comes out is what XDP has let through.
fn every_row(arguments: &str) {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours().mtu(1, NARROW.into());
    let testbed = Testbed::with_routes(&layout, arguments).unwrap();
    let good = Testbed::frame4(0, 1).udp(1, 2).payload(b"good");
    for Row { what, frame, reason } in rows() {
        // What comes after it has come through: it has not.
        let send = || {
            testbed.wire(0).send(&frame)?;
            testbed.send(0, 1, from_ref(&good))
        };
        let (received, counted) = testbed.counted(send).unwrap();
        assert_eq!(received, [Testbed::forwarded(&good, 1)], "{what}");
        assert_eq!(testbed.wire(1).arrived(|_| true).unwrap(), [[0; 0]; 0], "{what}");
        assert_eq!(counted.linux, Forwarded::default(), "{what}");
        let ingress = counted.xdp.interface("eth0").ingress();
        assert_eq!(ingress.rx.packets, 2, "{what}: {ingress:#?}");
        let passed = ingress.passed(reason);
        assert_eq!((passed.packets, ingress.passed_all()), (1, 1), "{what}: {ingress:#?}");
        assert_eq!(passed.bytes, frame.len() as u64, "{what}");
        assert_eq!(counted.xdp.redirected(), 1, "{what}: all others were left where they came in");
    }
}

fn rows() -> Vec<Row> {
    let [v4, v6] = both();
    let mut rows = not_ip();
    rows.extend(headers4(&v4));
    rows.extend(headers6(&v6));
    rows.extend(addresses4(&v4));
    rows.extend(addresses6(&v6));
    for (frame, to_a) in [(&v4, Testbed::frame4(0, 0)), (&v6, Testbed::frame6(0, 0))] {
        rows.extend(ethernet(frame));
        let row = |what, frame: Frame, reason| Row { what, frame: frame.bytes(), reason };
        let longer = frame.clone().ip_length(usize::from(NARROW) + 1);
        let padded = frame.clone().ip_length(1300).padding(150);
        rows.extend([
            row("back to where it came from", to_a, Reason::SameInterface),
            row("longer than the MTU of its egress", longer, Reason::TooBig),
            row("padded beyond what its egress accepts", padded, Reason::Padded),
        ]);
    }
    rows
}

fn both() -> [Frame; 2] {
    [Testbed::frame4(0, 1), Testbed::frame6(0, 1)].map(|frame| frame.udp(1, 2).payload(b"bad"))
}

fn not_ip() -> Vec<Row> {
    let head = [router_mac(0), host_mac(0)].concat();
    let row = |what, ether_type: u16, body: &[u8]| {
        let frame = [&head, ether_type.to_be_bytes().as_slice(), body].concat();
        Row { what, frame, reason: Reason::NotIp }
    };
    let mac = host_mac(0);
    let addresses = [198, 18, 1, 2, 0, 0, 0, 0, 0, 0, 198, 18, 1, 1];
    let question = [[0, 1, 8, 0, 6, 4, 0, 1].as_slice(), &mac, &addresses].concat();
    vec![row("LLDP", 0x88cc, &[0; 46]), row("ARP", ether_type::ARP, &question)]
}

fn ethernet(good: &Frame) -> Vec<Row> {
    let to = |what, mac: Mac, reason| Row {
        what,
        frame: good.clone().macs(host_mac(0), mac).bytes(),
        reason,
    };
    let tagged = |what, tags: &[(u16, u16)]| {
        let frame = Frame { tags: tags.to_vec(), ..good.clone() }.bytes();
        Row { what, frame, reason: Reason::Vlan }
    };
    let cut = |what, length| {
        let frame = good.bytes()[..length].to_vec();
        Row { what, frame, reason: Reason::Truncated }
    };
    vec![
        to("another's MAC address", host_mac(7), Reason::ForeignMac),
        to("that of the other interface", router_mac(1), Reason::ForeignMac),
        to("broadcast MAC address", [0xff; 6], Reason::GroupMac),
        to("multicast MAC address", [1, 0, 0x5e, 1, 2, 3], Reason::GroupMac),
        tagged("a VLAN tag", &[(ether_type::VLAN, 5)]),
        tagged("a priority tag", &[(ether_type::VLAN, 0xe000)]),
        tagged("two tags", &[(ether_type::SERVICE_VLAN, 5), (ether_type::VLAN, 6)]),
        cut("almost nothing", 15),
        cut("all of the IP header but a byte", good.bytes().len() - 12),
    ]
}

fn headers4(good: &Frame) -> Vec<Row> {
    let row = |what, frame: Frame, reason| Row { what, frame: frame.bytes(), reason };
    let with = |what, first_byte, reason| {
        row(what, good.clone().v4(|ip| ip.first_byte = Some(first_byte)), reason)
    };
    let length = |what, length, reason| {
        row(what, good.clone().v4(|ip| ip.total_length = Some(length)), reason)
    };
    vec![
        with("version 5", 0x55, Reason::BadHeader),
        with("version 6", 0x65, Reason::BadHeader),
        with("a header of 16 bytes", 0x44, Reason::BadHeader),
        length("a length that ends in the header", 19, Reason::BadHeader),
        length("a length of more than there is", 32, Reason::Truncated),
        row("options", good.clone().ip_options(&NO_OPERATIONS), Reason::IpOptions),
        row("wrong checksum", good.clone().v4(|ip| ip.checksum = Some(1)), Reason::BadChecksum),
        row("TTL 1", good.clone().ttl(1), Reason::TtlExpired),
        row("TTL 0", good.clone().ttl(0), Reason::TtlExpired),
    ]
}

fn headers6(good: &Frame) -> Vec<Row> {
    let row = |what, frame: Frame, reason| Row { what, frame: frame.bytes(), reason };
    let options = good.clone().extension(protocol::HOP_BY_HOP, &PADDING_OPTIONS);
    let longer = good.clone().v6(|ip| ip.payload_length = Some(12));
    vec![
        row("version 4", good.clone().v6(|ip| ip.version = 4), Reason::BadHeader),
        row("a length of more than there is", longer, Reason::Truncated),
        row("hop-by-hop options", options, Reason::HopByHop),
        row("hop limit 1", good.clone().ttl(1), Reason::TtlExpired),
        row("hop limit 0", good.clone().ttl(0), Reason::TtlExpired),
    ]
}

fn addresses4(good: &Frame) -> Vec<Row> {
    let from = |what, source: [u8; 4], reason| Row {
        what,
        frame: good.clone().v4(|ip| ip.source = source.into()).bytes(),
        reason,
    };
    let to = |what, destination: [u8; 4], reason| {
        let frame = good.clone().v4(|ip| ip.destination = destination.into());
        Row { what, frame: frame.bytes(), reason }
    };
    vec![
        from("from nowhere", [0, 0, 0, 0], Reason::MartianSource),
        from("from loopback", [127, 0, 0, 1], Reason::MartianSource),
        from("from link-local", [169, 254, 1, 1], Reason::MartianSource),
        from("from multicast", [224, 0, 0, 1], Reason::MartianSource),
        from("from broadcast", [255; 4], Reason::MartianSource),
        from("from the router", router4(0).octets(), Reason::OwnSource),
        from("from the router's other address", router4(1).octets(), Reason::OwnSource),
        from("from a subnet's broadcast address", [198, 18, 1, 255], Reason::OwnSource),
        to("to nowhere", [0, 0, 0, 0], Reason::MartianDestination),
        to("to loopback", [127, 1, 2, 3], Reason::MartianDestination),
        to("to link-local", [169, 254, 1, 1], Reason::MartianDestination),
        to("to multicast", [239, 1, 2, 3], Reason::Multicast),
        to("to broadcast", [255; 4], Reason::Multicast),
        to("to the router", router4(0).octets(), Reason::Local),
        to("to the router's other address", router4(1).octets(), Reason::Local),
        to("to a subnet's broadcast address", [198, 18, 2, 255], Reason::Local),
        to("to where no route leads", beyond4(9, 1).octets(), Reason::NoRoute),
    ]
}

fn addresses6(good: &Frame) -> Vec<Row> {
    let from = |what, source: &str, reason| {
        let source = source.parse().unwrap();
        Row { what, frame: good.clone().v6(|ip| ip.source = source).bytes(), reason }
    };
    let to = |what, destination: Ipv6Addr, reason| {
        let frame = good.clone().v6(|ip| ip.destination = destination);
        Row { what, frame: frame.bytes(), reason }
    };
    let address = |text: &str| text.parse().unwrap();
    vec![
        from("from nowhere", "::", Reason::MartianSource),
        from("from loopback", "::1", Reason::MartianSource),
        // Not that of A, who would answer when Linux asks for it.
        from("from link-local", "fe80::77", Reason::MartianSource),
        from("from multicast", "ff02::1", Reason::MartianSource),
        from("from IPv4", "::ffff:198.18.1.2", Reason::MartianSource),
        to("to nowhere", address("::"), Reason::MartianDestination),
        to("to loopback", address("::1"), Reason::MartianDestination),
        to("to the router's link-local address", address("fe80::1"), Reason::MartianDestination),
        to("to IPv4", address("::ffff:198.19.2.1"), Reason::MartianDestination),
        to("to multicast", address("ff0e::1"), Reason::Multicast),
        to("to the router", router6(0), Reason::Local),
        to("to the router's other address", router6(1), Reason::Local),
        to("to where no route leads", beyond6(9, 1), Reason::NoRoute),
    ]
}
