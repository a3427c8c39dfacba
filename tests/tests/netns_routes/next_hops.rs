//! Next hops of every kind, and what becomes of frames while one is not resolved.

use std::slice::from_ref;

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::{Frame, mac_text},
    lab::{Lab, host_mac, host4, host6},
    require, skip,
    testbed::{Counted, SOON, Testbed, routes_beyond},
    wait::wait_until,
};

use crate::{forwards, passes, route, wait_for_state, wait_for_way};

/// A next hop in the subnet of B that is nobody's address at first.
struct Missing {
    prefix: &'static str,
    via: &'static str,
    /// Of the subnet.
    length: u8,
    /// In the prefix.
    destination: &'static str,
    frame: Frame,
}

fn missing() -> [Missing; 2] {
    [
        Missing {
            prefix: "198.19.2.0/24",
            via: "198.18.2.77",
            length: 24,
            destination: "198.19.2.1",
            frame: Testbed::frame4(0, 1).udp(1, 2),
        },
        Missing {
            prefix: "2001:db8:102::/48",
            via: "2001:db8:2::77",
            length: 64,
            destination: "2001:db8:102::1",
            frame: Testbed::frame6(0, 1).udp(1, 2),
        },
    ]
}

impl Missing {
    /// B takes the address.
    fn appears(&self, testbed: &Testbed) {
        let Self { via, length, destination, .. } = self;
        testbed.lab.b().ip(&format!("address add {via}/{length} dev eth0")).unwrap();
        wait_for_way(testbed, destination, &mac_text(host_mac(1)));
        forwards(testbed, &self.frame, 1);
    }
}

#[test]
fn a_route_waits_for_its_neighbour_and_forwards_as_soon_as_that_is_there() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&Lab::router().forwarding(false), "").unwrap();
    for missing in missing() {
        let Missing { prefix, via, frame, .. } = &missing;
        let line = format!("{prefix} via {via} dev eth1");
        let added = testbed.daemon.forwarder().call(&format!("route add {line}")).unwrap();
        assert_eq!((added.code(), added.stdout.as_str()), (0, ""));
        assert_eq!(added.stderr, format!("{line}: pending: neighbour\n"));
        let shown = testbed.daemon.ok(&format!("route show {prefix}")).unwrap();
        assert_eq!(shown, format!("{line} proto xdp  # pending: neighbour\n"));
        passes(&testbed, frame, Reason::NeighbourPending);
        missing.appears(&testbed);
        assert_eq!(route(&testbed, prefix).unwrap()["state"], "forwarding");
    }
}

#[test]
fn a_next_hop_that_does_not_answer_fails_and_is_asked_again() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&Lab::router().forwarding(false), "").unwrap();
    for family in ["ipv4", "ipv6"] {
        // Linux gives up after three questions.
        testbed.lab.router.sysctl(&format!("{family}/neigh/eth1/retrans_time_ms"), "50").unwrap();
    }
    for missing in missing() {
        let Missing { prefix, via, frame, .. } = &missing;
        let line = format!("{prefix} via {via} dev eth1");
        let add = format!("route add {line} --wait 1");
        let refused = testbed.daemon.forwarder().call(&add).unwrap();
        assert_eq!((refused.code(), refused.stdout.as_str()), (1, ""));
        let start = format!("error: {line} does not forward after 1 s: ");
        let why = refused.stderr.strip_prefix(&start).unwrap_or_default();
        // Asked again every second, it is pending now and then.
        let states = ["pending: neighbour (", "unusable: neighbour_failed ("];
        assert!(states.iter().any(|state| why.starts_with(state)), "{}", refused.stderr);
        wait_for_state(&testbed, prefix, "unusable", "neighbour_failed");
        let before = testbed.daemon.stats().unwrap();
        wait_until("a frame to find that the next hop has failed", SOON, || {
            testbed.wire(0).send(&frame.bytes())?;
            let since = testbed.daemon.stats()?.since(&before);
            Ok((since.interface("eth0").passed(Reason::NeighbourFailed) > 0).then_some(()))
        })
        .unwrap();
        missing.appears(&testbed);
    }
}

/// Linux confirms only what it forwards itself: it must be asked to, again and again.
#[test]
fn a_next_hop_in_use_is_kept_resolved() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false);
    let testbed = Testbed::start(&layout, "").unwrap();
    for (key, value) in [("base_reachable_time_ms", "100"), ("delay_first_probe_time", "0")] {
        testbed.lab.router.sysctl(&format!("ipv4/neigh/eth1/{key}"), value).unwrap();
    }
    testbed.route("198.19.2.0/24 via 198.18.2.2").unwrap();
    let frame = Testbed::frame4(0, 1).udp(1, 2);
    let (mut sent, mut questions) = (0, 0);
    let keep = || {
        wait_until("three questions for the next hop's MAC address", SOON, || {
            testbed.wire(0).send(&frame.bytes())?;
            sent += 1;
            let arrived = testbed.wire(1).arrived(|frame| frame[12..14] == [8, 6])?;
            questions += arrived.len();
            Ok((questions >= 3).then_some(()))
        })
    };
    let ((), counted) = testbed.counted(keep).unwrap();
    let port = counted.xdp.interface("eth0");
    assert_eq!((port.ingress().rx.packets, port.redirected()), (sent, sent), "{port:#?}");
}

#[test]
fn a_command_waits_until_its_route_forwards() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&Lab::router().forwarding(false), "").unwrap();
    for (route, frame) in [
        ("198.19.2.0/24 via 198.18.2.2", Testbed::frame4(0, 1)),
        ("2001:db8:102::/48 via 2001:db8:2::2", Testbed::frame6(0, 1)),
    ] {
        let add = format!("route add {route} --wait 3");
        let added = testbed.daemon.forwarder().call(&add).unwrap();
        assert_eq!((added.code(), added.stdout.as_str(), added.stderr.as_str()), (0, "", ""));
        forwards(&testbed, &frame.udp(1, 2), 1);
    }
}

#[test]
fn gateways_of_every_kind() {
    require!(skip::forwarder());
    let layout = Lab::router().links(3).forwarding(false);
    let testbed = Testbed::start(&layout, "").unwrap();
    let (four, six) = (Testbed::frame4(0, 1).udp(1, 2), Testbed::frame6(0, 1).udp(1, 2));
    for (route, frame, to) in [
        ("198.19.2.0/24 via 198.18.2.2", &four, 1),
        ("198.19.2.0/24 via inet6 2001:db8:3::2", &four, 2),
        ("198.19.2.0/24 via inet6 fe80::2 dev eth1", &four, 1),
        ("2001:db8:102::/48 via 2001:db8:3::2", &six, 2),
        ("2001:db8:102::/48 via fe80::2 dev eth1", &six, 1),
        ("2001:db8:102::/48 via fe80::2 dev eth2", &six, 2),
    ] {
        testbed.daemon.ok(&format!("route replace {route} --wait 3")).unwrap();
        forwards(&testbed, frame, to);
    }
}

#[test]
fn default_routes() {
    require!(skip::forwarder());
    let layout = Lab::router().links(3).forwarding(false).static_neighbours();
    let testbed = Testbed::start(&layout, "").unwrap();
    let frames = |to| [Testbed::frame4(0, to).udp(1, 2), Testbed::frame6(0, to).udp(1, 2)];
    for frame in frames(1) {
        passes(&testbed, &frame, Reason::NoRoute);
    }
    testbed.route(&format!("default via {}", host4(2))).unwrap();
    forwards(&testbed, &frames(1)[0], 2);
    passes(&testbed, &frames(1)[1], Reason::NoRoute);
    testbed.route(&format!("default via {}", host6(2))).unwrap();
    forwards(&testbed, &frames(1)[1], 2);
    // What is longer wins.
    for route in routes_beyond(1) {
        testbed.route(&route).unwrap();
    }
    for (known, unknown) in frames(1).iter().zip(&frames(7)) {
        forwards(&testbed, known, 1);
        forwards(&testbed, unknown, 2);
    }
    testbed.daemon.ok("-6 route del default").unwrap();
    forwards(&testbed, &frames(7)[0], 2);
    passes(&testbed, &frames(7)[1], Reason::NoRoute);
}

/// In a connected network each host is resolved by Linux when a frame for it goes up.
#[test]
fn the_first_frame_to_a_connected_host_goes_up_and_the_next_ones_do_not() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&Lab::router(), "").unwrap();
    for (prefix, b, frame) in [
        ("198.18.2.0/24", host4(1).to_string(), Lab::frame4(0, 1)),
        ("2001:db8:2::/64", host6(1).to_string(), Lab::frame6(0, 1)),
    ] {
        // A fragment alone is answered by nobody.
        let frame = frame.udp(1, 2).fragment(0, true).payload(&[0; 16]);
        testbed.daemon.ok(&format!("route add {prefix} dev eth1")).unwrap();
        assert_eq!(route(&testbed, prefix).unwrap()["state"], "connected");
        // The second time, Linux has forgotten the host.
        for _ in 0..2 {
            first_goes_up(&testbed, &frame);
            wait_for_way(&testbed, &b, &mac_text(host_mac(1)));
            for _ in 0..3 {
                forwards(&testbed, &frame, 1);
            }
            testbed.lab.router.ip(&format!("neigh del {b} dev eth1")).unwrap();
            wait_until("the host to be forgotten", SOON, || {
                let routes = testbed.daemon.forwarder().json(&format!("route get {b}"))?;
                Ok((routes[0]["state"] == "pending").then_some(()))
            })
            .unwrap();
        }
    }
}

/// Linux forwards it, once it has resolved the destination.
fn first_goes_up(testbed: &Testbed, frame: &Frame) {
    let send = || testbed.send(0, 1, from_ref(frame));
    let (received, Counted { xdp, linux }) = testbed.counted(send).unwrap();
    assert_eq!(received, [Lab::forwarded(frame, 1)]);
    let port = xdp.interface("eth0");
    assert_eq!((port.redirected(), port.passed(Reason::NeighbourPending)), (0, 1), "{port:#?}");
    assert_eq!(linux.v4 + linux.v6, 1, "{linux:?}");
}
