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

#[test]
fn a_daemon_without_routes_of_linux_forwards_whatever_linux_does() {
    require!(skip::forwarder());
    let layout = Lab::router().forwarding(false).static_neighbours();
    let testbed = Testbed::with_routes(&layout, "--routes static").unwrap();
    for frame in [Testbed::frame4(0, 1), Testbed::frame6(0, 1)] {
        forwards(&testbed, &frame.udp(1024, 9), 1);
    }
}
