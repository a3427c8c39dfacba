//! Sysctls that decide whether Linux forwards.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::Frame,
    lab::{Lab, host4, host6},
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

use crate::{forwards, ip, nobody_forwards, two_links, wait_for_gateway};

/// Waits until a note of `status` names a sysctl, or until none does.
fn wait_for_note(testbed: &Testbed, sysctl: &str, is_there: bool) {
    let what = format!("a note on {sysctl}: {is_there}");
    wait_until(&what, SOON, || {
        let notes = testbed.daemon.forwarder().json("status")?["notes"].to_string();
        Ok((notes.contains(sysctl) == is_there).then_some(()))
    })
    .unwrap();
}

fn with_routes() -> (Testbed, [Frame; 2]) {
    let testbed = two_links();
    ip(&testbed, &format!("route add 198.19.2.0/24 via {}", host4(1)));
    ip(&testbed, &format!("route add 2001:db8:102::/48 via {}", host6(1)));
    wait_for_gateway(&testbed, "2001:db8:102::/48", Some(&host6(1).to_string()));
    let frames = [Testbed::frame4(0, 1), Testbed::frame6(0, 1)].map(|it| it.udp(1024, 9));
    for frame in &frames {
        forwards(&testbed, frame, 1);
    }
    (testbed, frames)
}

#[test]
fn where_linux_does_not_forward_nobody_does() {
    require!(skip::forwarder());
    let (testbed, [frame4, frame6]) = with_routes();
    let router = &testbed.lab.router;
    for (frame, sysctl, name) in [
        (&frame4, "ipv4/conf/eth0/forwarding", "net.ipv4.conf.eth0.forwarding"),
        (&frame4, "ipv4/ip_forward", "net.ipv4.ip_forward"),
        (&frame6, "ipv6/conf/all/forwarding", "net.ipv6.conf.all.forwarding"),
    ] {
        router.sysctl(sysctl, "0").unwrap();
        wait_for_note(&testbed, name, true);
        nobody_forwards(&testbed, frame, Reason::ForwardingOff);
        router.sysctl(sysctl, "1").unwrap();
        wait_for_note(&testbed, name, false);
        // IPv6 forgets its routes over gateways when forwarding is switched; they are static here.
        forwards(&testbed, frame, 1);
    }
    // The egress has no say.
    router.sysctl("ipv4/conf/eth1/forwarding", "0").unwrap();
    wait_for_note(&testbed, "net.ipv4.conf.eth1.forwarding", true);
    forwards(&testbed, &frame4, 1);
}

/// Waits until a frame has this verdict, by sending it until it has.
fn wait_for_verdict(testbed: &Testbed, frame: &Frame, reason: Reason) {
    let what = format!("frames to be passed as {}", reason.label());
    wait_until(&what, SOON, || {
        let before = testbed.daemon.stats()?;
        testbed.wire(0).send(&frame.bytes())?;
        wait_until("it to come in", SOON, || {
            let since = testbed.daemon.stats()?.since(&before);
            Ok((since.interface("eth0").ingress().rx.packets == 1).then_some(()))
        })?;
        let since = testbed.daemon.stats()?.since(&before);
        Ok((since.interface("eth0").passed(reason) == 1).then_some(()))
    })
    .unwrap();
    for wire in &testbed.wires {
        let _ = wire.arrived(|_| true);
    }
}

#[test]
fn sources_are_checked_as_linux_checks_them() {
    require!(skip::forwarder());
    let (testbed, [frame, _]) = with_routes();
    let router = &testbed.lab.router;
    // 198.19.1.0/24, where the frame says it comes from, has no route yet.
    router.sysctl("ipv4/conf/eth0/rp_filter", "2").unwrap();
    wait_for_verdict(&testbed, &frame, Reason::RpFilter);
    nobody_forwards(&testbed, &frame, Reason::RpFilter);
    // By another interface: enough for the loose check, and not for the strict one.
    ip(&testbed, &format!("route add 198.19.1.0/24 via {}", host4(1)));
    wait_for_gateway(&testbed, "198.19.1.0/24", Some(&host4(1).to_string()));
    forwards(&testbed, &frame, 1);
    router.sysctl("ipv4/conf/all/rp_filter", "1").unwrap();
    router.sysctl("ipv4/conf/eth0/rp_filter", "0").unwrap();
    wait_for_verdict(&testbed, &frame, Reason::RpFilter);
    nobody_forwards(&testbed, &frame, Reason::RpFilter);
    ip(&testbed, &format!("route replace 198.19.1.0/24 via {}", host4(0)));
    wait_for_gateway(&testbed, "198.19.1.0/24", Some(&host4(0).to_string()));
    forwards(&testbed, &frame, 1);
}

#[test]
fn flows_are_spread_by_what_linux_looks_at() {
    require!(skip::forwarder());
    let testbed = crate::follower(Lab::router().links(3));
    let prefix = "198.19.2.0/24";
    let (one, two) = (host4(1), host4(2));
    ip(&testbed, &format!("route add {prefix} nexthop via {one} nexthop via {two}"));
    crate::wait_for(&testbed, prefix, "two", |it| it[0]["nexthops"].get(1).is_some());
    let links = |ports: std::ops::Range<u16>| {
        let frames: Vec<Frame> =
            ports.map(|port| Testbed::frame4(0, 1).udp(1024 + port, 9)).collect();
        let links = testbed.scatter(0, &[1, 2], &frames).unwrap();
        links.into_iter().collect::<std::collections::BTreeSet<u8>>().len()
    };
    assert_eq!(links(0..100), 1, "by addresses alone, as Linux does unless told otherwise");
    let policy = "ipv4/fib_multipath_hash_policy";
    testbed.lab.router.sysctl(policy, "1").unwrap();
    wait_until("ports to count", SOON, || Ok((links(100..200) == 2).then_some(()))).unwrap();
    testbed.lab.router.sysctl(policy, "2").unwrap();
    crate::wait_for(&testbed, prefix, "it to be left", |it| it[0]["skipped"] == "hash");
    let skipped = testbed.daemon.ok("route show --skipped").unwrap();
    assert!(skipped.contains("fib_multipath_hash_policy"), "{skipped}");
}

#[test]
fn a_daemon_without_routes_of_linux_forwards_whatever_linux_does() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "--routes static").unwrap();
    for frame in [Testbed::frame4(0, 1), Testbed::frame6(0, 1)] {
        forwards(&testbed, &frame.udp(1024, 9), 1);
    }
}
