//! `route add` and its like write Linux's table, unless they are told not to.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    lab::{Lab, host4, host6},
    require, skip,
    testbed::Testbed,
};

use crate::{follower, forwards, ip, nobody_forwards, shown, two_links, wait_for_gateway};

/// What Linux has of a prefix, as `ip route` prints it.
fn linux(testbed: &Testbed, prefix: &str) -> String {
    let family = if prefix.contains(':') { "-6" } else { "-4" };
    testbed.lab.router.ip(&format!("{family} route show {prefix}")).unwrap()
}

fn refused(testbed: &Testbed, arguments: &str) -> String {
    let finished = testbed.daemon.forwarder().call(arguments).unwrap();
    assert_eq!(finished.code(), 1, "{arguments}: {finished:?}");
    finished.stderr
}

#[test]
fn a_route_is_linuxs_too_and_survives_us() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    for (frame, prefix, via) in [
        (Testbed::frame4(0, 1), "198.19.2.0/24", [1, 2].map(|it| host4(it).to_string())),
        (Testbed::frame6(0, 1), "2001:db8:102::/48", [1, 2].map(|it| host6(it).to_string())),
    ] {
        let frame = frame.udp(1024, 9);
        testbed.daemon.ok(&format!("route add {prefix} via {} dev eth1", via[0])).unwrap();
        forwards(&testbed, &frame, 1);
        let there = linux(&testbed, prefix);
        assert!(there.contains(&format!("via {} dev eth1 proto 246", via[0])), "{there}");
        assert_eq!(shown(&testbed, prefix).unwrap()[0]["protocol"], "forwarder");
        let stderr = refused(&testbed, &format!("route add {prefix} via {}", via[1]));
        assert!(stderr.contains("exists already") && stderr.contains("route replace"), "{stderr}");

        testbed.daemon.ok(&format!("route replace {prefix} via {}", via[1])).unwrap();
        forwards(&testbed, &frame, 2);
        testbed.daemon.ok(&format!("route append {prefix} via {} weight 2", via[0])).unwrap();
        assert_eq!(linux(&testbed, prefix).matches("nexthop").count(), 2);
        let twice = refused(&testbed, &format!("route append {prefix} via {}", via[0]));
        assert!(twice.contains("twice"), "{twice}");
        testbed.daemon.ok(&format!("route del {prefix} via {}", via[1])).unwrap();
        forwards(&testbed, &frame, 1);
        testbed.daemon.ok(&format!("route del {prefix}")).unwrap();
        assert_eq!(linux(&testbed, prefix), "");
        nobody_forwards(&testbed, &frame, Reason::NoRoute);
    }
    testbed.daemon.ok("route add 198.19.3.0/24 via inet6 2001:db8:2::2 dev eth1").unwrap();
    assert!(linux(&testbed, "198.19.3.0/24").contains("via inet6 2001:db8:2::2"));
    testbed.daemon.ok("route add 198.19.4.0/24 dev eth2").unwrap();
    assert!(linux(&testbed, "198.19.4.0/24").contains("dev eth2 proto 246 scope link"));
    let Testbed { daemon, lab, .. } = testbed;
    drop(daemon);
    let left = lab.router.ip("route show proto 246").unwrap();
    assert_eq!(left.lines().count(), 2, "{left}");
}

#[test]
fn what_others_have_made_is_theirs() {
    require!(skip::forwarder());
    let testbed = two_links();
    ip(&testbed, "route add 198.19.2.0/24 via 198.18.2.2 proto bird");
    wait_for_gateway(&testbed, "198.19.2.0/24", Some("198.18.2.2"));
    for command in [
        "route replace 198.19.2.0/24 via 198.18.1.2",
        "route append 198.19.2.0/24 via 198.18.1.2",
        "route del 198.19.2.0/24",
        "route del 198.18.2.0/24",
    ] {
        let stderr = refused(&testbed, command);
        assert!(
            stderr.contains("is not forwarder's (proto ") && stderr.contains("ip route"),
            "{stderr}"
        );
    }
    // Linux's own words, where it refuses.
    let stderr = refused(&testbed, "route add 198.19.9.0/24 via 198.18.9.9");
    assert!(stderr.contains("198.18.9.9"), "{stderr}");
    testbed.daemon.ok("route add 198.19.5.0/24 via 198.18.2.2").unwrap();
    testbed.daemon.ok("route add 198.19.6.0/24 via 198.18.2.2 --xdp-only").unwrap();
    let finished = testbed.daemon.forwarder().call("route flush all").unwrap();
    assert!(finished.stderr.contains("2 routes removed"), "{}", finished.stderr);
    assert!(linux(&testbed, "198.19.2.0/24").contains("proto bird"));
    assert_eq!(linux(&testbed, "198.19.5.0/24"), "");
}

#[test]
fn a_route_in_xdp_alone_comes_before_linuxs_and_linux_never_sees_it() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    let (prefix, frame) = ("198.19.2.0/24", Testbed::frame4(0, 1).udp(1024, 9));
    ip(&testbed, &format!("route add {prefix} via {}", host4(1)));
    wait_for_gateway(&testbed, prefix, Some(&host4(1).to_string()));
    forwards(&testbed, &frame, 1);
    testbed.daemon.ok(&format!("route add {prefix} via {} --xdp-only", host4(2))).unwrap();
    forwards(&testbed, &frame, 2);
    assert!(!linux(&testbed, prefix).contains("eth2"));
    let routes = shown(&testbed, prefix).unwrap();
    assert_eq!((&routes[0]["protocol"], &routes[1]["shadowed"]), (&"xdp".into(), &true.into()));
    let stderr = refused(&testbed, &format!("route add {prefix} via {}", host4(1)));
    assert!(stderr.contains("--xdp-only"), "{stderr}");
    testbed.daemon.ok(&format!("route del {prefix}")).unwrap();
    forwards(&testbed, &frame, 1);

    // Next hops of single CPUs, and files, are XDP's alone.
    testbed.daemon.ok("route add 198.19.7.0/24 cpu 0 via 198.18.2.2").unwrap();
    assert_eq!(linux(&testbed, "198.19.7.0/24"), "");
    let stderr = refused(&testbed, "route load /dev/null");
    assert!(stderr.contains("ip -batch") && stderr.contains("--xdp-only"), "{stderr}");
    testbed.daemon.ok("route load /dev/null --xdp-only").unwrap();
}
