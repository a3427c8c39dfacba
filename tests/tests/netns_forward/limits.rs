//! The last frame that XDP forwards, and the first that it leaves to Linux, which answers.

use std::{net::IpAddr, slice::from_ref};

use anyhow::Result;
use forwarder_common::verdict::Reason;
use forwarder_tests::{
    cpu,
    frame::{Frame, Ip, Packet},
    kernel::Forwarded,
    lab::{Lab, router4, router6},
    require, skip,
    testbed::{Counted, SOON, Testbed, routes_beyond},
};

/// The MTU of the link to B.
const NARROW: u16 = 1400;
/// Longer than any buffer.
const JUMBO: u16 = 9000;

#[test]
fn native() {
    limits("native");
}

#[test]
fn generic() {
    limits("generic");
}

#[test]
fn frames_of_several_buffers() {
    require!(skip::forwarder());
    require!(skip::cpus(2));
    let layout = Lab::router().forwarding(false).static_neighbours();
    let layout = layout.mtu(0, JUMBO.into()).mtu(1, JUMBO.into());
    for arguments in ["--mode native --steer off", "--mode native --steer cpus=1"] {
        let testbed = Testbed::with_routes(&layout, arguments).unwrap();
        for frame in [Testbed::frame4(0, 1), Testbed::frame6(0, 1)] {
            cpu::on(0, || by_xdp(&testbed, &frame.udp(1, 2).ip_length(JUMBO.into())));
        }
    }
}

/// Linux forwards too, and has the same routes.
fn limits(mode: &str) {
    require!(skip::forwarder());
    let layout = Lab::router().static_neighbours().mtu(1, NARROW.into());
    let testbed = Testbed::with_routes(&layout, &format!("--mode {mode} --steer off")).unwrap();
    for route in [routes_beyond(0), routes_beyond(1)].as_flattened() {
        testbed.lab.router.ip(&format!("route add {route}")).unwrap();
    }
    let frames = [Testbed::frame4(0, 1).udp(1, 2), Testbed::frame6(0, 1).udp(1, 2)];
    for frame in frames {
        ttl(&testbed, &frame);
        mtu(&testbed, &frame);
    }
    linux_fragments(&testbed);
}

fn ttl(testbed: &Testbed, frame: &Frame) {
    by_xdp(testbed, &frame.clone().ttl(2));
    let (kind, code) = if is_v4(frame) { (11, 0) } else { (3, 0) };
    answered(testbed, &frame.clone().ttl(1), Reason::TtlExpired, (kind, code, 0));
}

fn mtu(testbed: &Testbed, frame: &Frame) {
    by_xdp(testbed, &frame.clone().ip_length(NARROW.into()));
    let (kind, code) = if is_v4(frame) { (3, 4) } else { (2, 0) };
    let longer = frame.clone().ip_length(usize::from(NARROW) + 1);
    answered(testbed, &longer, Reason::TooBig, (kind, code, NARROW.into()));
}

/// Where the sender allows it.
fn linux_fragments(testbed: &Testbed) {
    let longer = Testbed::frame4(0, 1).udp(1, 2).v4(|ip| ip.dont_fragment = false);
    let longer = longer.ip_length(usize::from(NARROW) + 1);
    testbed.wire(0).send(&longer.bytes()).unwrap();
    let received = testbed.wire(1).collect(2, SOON, |_| true).unwrap();
    let fragments: Vec<_> = received.iter().map(|frame| Packet::of_frame(frame).unwrap()).collect();
    assert!(fragments[0].fragment == (0, true) && fragments[1].fragment.0 > 0, "{fragments:?}");
    let whole: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.body.clone()).collect();
    assert_eq!(whole, Packet::of_ip(&longer.ip_packet()).unwrap().body);
}

fn by_xdp(testbed: &Testbed, frame: &Frame) {
    let send = || testbed.send(0, 1, from_ref(frame));
    let (received, counted) = testbed.counted(send).unwrap();
    assert_eq!(received, [Testbed::forwarded(frame, 1)]);
    assert_eq!((counted.xdp.redirected(), counted.linux), (1, Forwarded::default()));
}

/// The frame goes up for this reason, and Linux answers with this ICMP error.
fn answered(testbed: &Testbed, frame: &Frame, reason: Reason, error: (u8, u8, u32)) {
    let ask = || -> Result<Packet> {
        testbed.wire(0).send(&frame.bytes())?;
        Packet::of_frame(&testbed.wire(0).collect(1, SOON, |_| true)?[0])
    };
    let (answer, Counted { xdp, .. }) = testbed.counted(ask).unwrap();
    assert_eq!(answer.problems(), [""; 0]);
    let router: IpAddr = if is_v4(frame) { router4(0).into() } else { router6(0).into() };
    assert_eq!(answer.source, router);
    let icmp = answer.icmp().unwrap();
    assert_eq!((icmp.kind, icmp.code, icmp.word), error);
    // As it was: with the hop limit and the checksum that it came with.
    let quoted = icmp.content;
    assert!(frame.ip_packet().starts_with(quoted) && quoted.len() >= 28, "{quoted:02x?}");
    let port = xdp.interface("eth0");
    assert_eq!((port.passed(reason), port.ingress().rx.packets), (1, 1), "{port:#?}");
    assert_eq!(testbed.wire(1).arrived(|_| true).unwrap(), [[0; 0]; 0]);
}

fn is_v4(frame: &Frame) -> bool {
    matches!(frame.ip, Ip::V4(_))
}
