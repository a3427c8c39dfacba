//! What cannot be expressed is left to Linux, and hides nothing that it hides there: Linux's answer
//! and ours, case by case.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    lab::{Lab, host4, host6},
    require, skip,
    testbed::Testbed,
};

use crate::{
    follower, forwards, ip, left_to_linux, nobody_forwards, two_links, wait_for, wait_for_gateway,
};

#[test]
fn routes_that_lead_nowhere_are_linuxs_to_answer() {
    require!(skip::forwarder());
    let testbed = two_links();
    for (frame, shorter, prefix, via) in [
        (Testbed::frame4(0, 1), "198.19.0.0/16", "198.19.2.0/24", host4(1).to_string()),
        (Testbed::frame6(0, 1), "2001:db8:100::/40", "2001:db8:102::/48", host6(1).to_string()),
    ] {
        let frame = frame.udp(1024, 9);
        ip(&testbed, &format!("route add {shorter} via {via}"));
        wait_for_gateway(&testbed, shorter, Some(&via));
        forwards(&testbed, &frame, 1);
        for kind in ["blackhole", "unreachable", "prohibit", "throw"] {
            ip(&testbed, &format!("route add {kind} {prefix}"));
            wait_for(&testbed, prefix, kind, |it| it[0]["skipped"] == kind);
            nobody_forwards(&testbed, &frame, Reason::Discard);
            let skipped = testbed.daemon.ok("route show --skipped").unwrap();
            let dev = if prefix.contains('.') { "" } else { " dev lo" };
            assert!(skipped.starts_with(&format!("{kind} {prefix}{dev} proto boot")), "{skipped}");
            assert_eq!(skipped.lines().count(), 1, "{skipped}");
            ip(&testbed, &format!("route del {kind} {prefix}"));
            wait_for_gateway(&testbed, prefix, None);
            forwards(&testbed, &frame, 1);
        }
    }
}

#[test]
fn routes_that_only_linux_can_follow_are_punted() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    let (shorter, prefix) = ("198.19.0.0/16", "198.19.2.0/24");
    let frame = Testbed::frame4(0, 1).udp(1024, 9);
    ip(&testbed, &format!("route add {shorter} via {}", host4(1)));
    wait_for_gateway(&testbed, shorter, Some(&host4(1).to_string()));
    let via = host4(2);
    for (route, skip) in [
        (format!("{prefix} via {via} mtu 1300"), "mtu"),
        (format!("{prefix} via {via} mtu lock 1300"), "mtu"),
        (format!("{prefix} tos 0 via {via} mtu 1300"), "mtu"),
    ] {
        ip(&testbed, &format!("route add {route}"));
        wait_for(&testbed, prefix, skip, |it| it[0]["skipped"] == skip);
        left_to_linux(&testbed, &frame, Reason::Punt, 2);
        ip(&testbed, &format!("route del {prefix}"));
        wait_for_gateway(&testbed, prefix, None);
    }
    // One that holds for another TOS makes all others doubtful: Linux knows.
    ip(&testbed, &format!("route add {prefix} tos 0x10 via {via}"));
    wait_for(&testbed, prefix, "tos", |it| it[0]["skipped"] == "tos");
    left_to_linux(&testbed, &frame, Reason::Punt, 1);
    ip(&testbed, &format!("route del {prefix} tos 0x10"));
    wait_for_gateway(&testbed, prefix, None);
    forwards(&testbed, &frame, 1);
    // Two of one metric, of which Linux takes one.
    for dev in ["eth1", "eth2"] {
        ip(&testbed, &format!("-6 route append 2001:db8:102::/48 dev {dev} metric 7"));
    }
    wait_for(&testbed, "2001:db8:102::/48", "two", |it| it[0]["skipped"] == "ambiguous");
}

#[test]
fn a_rule_that_may_lead_elsewhere_stops_its_family_until_it_goes() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    let (frame4, frame6) = (Testbed::frame4(0, 1).udp(1024, 9), Testbed::frame6(0, 1).udp(1024, 9));
    ip(&testbed, &format!("route add 198.19.2.0/24 via {}", host4(1)));
    ip(&testbed, &format!("route add 2001:db8:102::/48 via {}", host6(1)));
    wait_for_gateway(&testbed, "2001:db8:102::/48", Some(&host6(1).to_string()));
    forwards(&testbed, &frame4, 1);
    forwards(&testbed, &frame6, 1);

    let notes =
        |testbed: &Testbed| testbed.daemon.forwarder().json("status").unwrap()["notes"].to_string();
    ip(&testbed, &format!("route add 198.19.0.0/16 via {} table 99", host4(2)));
    ip(&testbed, "rule add from 198.19.0.0/16 lookup 99 priority 50");
    forwarder_tests::wait::wait_until("the note", forwarder_tests::testbed::SOON, || {
        Ok(notes(&testbed).contains("from 198.19.0.0/16 lookup 99").then_some(()))
    })
    .unwrap();
    left_to_linux(&testbed, &frame4, Reason::Punt, 2);
    forwards(&testbed, &frame6, 1);
    // One for what this host sends itself is none for what it forwards.
    ip(&testbed, "rule add iif lo lookup 99 priority 60");
    ip(&testbed, "rule del priority 50");
    forwarder_tests::wait::wait_until("the note to go", forwarder_tests::testbed::SOON, || {
        Ok((!notes(&testbed).contains("lookup 99")).then_some(()))
    })
    .unwrap();
    forwards(&testbed, &frame4, 1);
}

#[test]
fn an_address_of_this_host_hides_the_routes_below_it() {
    require!(skip::forwarder());
    let testbed = two_links();
    let frame = Testbed::frame4(0, 1).udp(1024, 9);
    ip(&testbed, &format!("route add 198.19.2.1/32 via {}", host4(1)));
    wait_for(&testbed, "198.19.2.1/32", "it to forward", |it| it[0]["state"] == "forwarding");
    forwards(&testbed, &frame, 1);
    ip(&testbed, "addr add 198.19.2.1/32 dev lo");
    wait_for(&testbed, "198.19.2.1/32", "it to be ours", |it| it[0]["reason"] == "local");
    nobody_forwards(&testbed, &frame, Reason::Local);
    ip(&testbed, "addr del 198.19.2.1/32 dev lo");
    wait_for(&testbed, "198.19.2.1/32", "it to forward", |it| it[0]["state"] == "forwarding");
    forwards(&testbed, &frame, 1);
}
