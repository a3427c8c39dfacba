//! Routes as they come, change and go in Linux's main table.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::{Frame, mac_text},
    lab::{Lab, host_mac, host4, host6},
    require, skip,
    testbed::{Counted, SOON, Testbed, beyond4, beyond6, is_traffic, routes_beyond},
    wait::wait_until,
};

use crate::{
    follower, forwards, ip, left_to_linux, nobody_forwards, shown, two_links, wait_for,
    wait_for_gateway,
};

#[test]
fn a_router_that_is_there_already_just_works() {
    require!(skip::forwarder());
    let lab = Lab::router().static_neighbours().build().unwrap();
    for route in routes_beyond(1) {
        lab.router.ip(&format!("route add {route}")).unwrap();
    }
    // IPv6 over IPv4 prefixes, as RFC 8950 has it; and a gateway that is in no subnet.
    lab.router.ip("route add 198.19.77.0/24 via inet6 2001:db8:2::2 dev eth1").unwrap();
    lab.router.ip("route add 198.19.78.0/24 via 203.0.113.7 dev eth1 onlink").unwrap();
    let onlink = format!("neigh replace 203.0.113.7 lladdr {} dev eth1", mac_text(host_mac(1)));
    lab.router.ip(&format!("{onlink} nud permanent")).unwrap();
    let testbed = Testbed::on(lab, "--iface eth0,eth1 --routes kernel").unwrap();

    for frame in [Testbed::frame4(0, 1), Testbed::frame6(0, 1)] {
        forwards(&testbed, &frame.udp(1024, 9), 1);
    }
    let to = |last: [u8; 2]| {
        let to = std::net::Ipv4Addr::new(198, 19, last[0], last[1]);
        Frame::ipv4(beyond4(0, 1), to).udp(1024, 9)
    };
    for network in [77, 78] {
        let frame = to([network, 1]);
        let frame = frame.macs(host_mac(0), forwarder_tests::lab::router_mac(0));
        forwards(&testbed, &frame, 1);
    }
    // The hosts themselves are neighbours of a connected route.
    for frame in [Lab::frame4(0, 1), Lab::frame6(0, 1)] {
        forwards(&testbed, &frame.udp(1024, 9), 1);
    }
    let status = testbed.daemon.forwarder().json("status").unwrap();
    assert!(status["routes4"].as_u64().unwrap() >= 5, "{status:#}");
}

#[test]
fn routes_come_change_and_go() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    for (frame, prefix, hosts) in [
        (
            Testbed::frame4(0, 1),
            format!("{}/24", beyond4(1, 0)),
            [1, 2].map(|it| host4(it).to_string()),
        ),
        (
            Testbed::frame6(0, 1),
            format!("{}/48", beyond6(1, 0)),
            [1, 2].map(|it| host6(it).to_string()),
        ),
    ] {
        let frame = frame.udp(1024, 9);
        nobody_forwards(&testbed, &frame, Reason::NoRoute);

        ip(&testbed, &format!("route add {prefix} via {} metric 50", hosts[0]));
        wait_for_gateway(&testbed, &prefix, Some(&hosts[0]));
        forwards(&testbed, &frame, 1);
        // A better one, then it goes and the first counts again.
        ip(&testbed, &format!("route add {prefix} via {} metric 20", hosts[1]));
        wait_for_gateway(&testbed, &prefix, Some(&hosts[1]));
        forwards(&testbed, &frame, 2);
        ip(&testbed, &format!("route del {prefix} metric 20"));
        wait_for_gateway(&testbed, &prefix, Some(&hosts[0]));
        forwards(&testbed, &frame, 1);
        ip(&testbed, &format!("route replace {prefix} via {} metric 50", hosts[1]));
        wait_for_gateway(&testbed, &prefix, Some(&hosts[1]));
        forwards(&testbed, &frame, 2);
        ip(&testbed, &format!("route del {prefix}"));
        wait_for_gateway(&testbed, &prefix, None);
        nobody_forwards(&testbed, &frame, Reason::NoRoute);
    }
}

#[test]
fn a_metric_of_zero_and_protocols_are_shown() {
    require!(skip::forwarder());
    let testbed = two_links();
    ip(&testbed, "route add 198.19.2.0/24 via 198.18.2.2 proto bird metric 32");
    ip(&testbed, "route add 198.19.2.0/24 via 198.18.1.2 proto static metric 40");
    wait_for(&testbed, "198.19.2.0/24", "two routes", |routes| routes.get(1).is_some());
    let routes = shown(&testbed, "198.19.2.0/24").unwrap();
    assert_eq!((&routes[0]["protocol"], &routes[0]["metric"]), (&"bird".into(), &32.into()));
    assert_eq!((&routes[1]["protocol"], &routes[1]["shadowed"]), (&"static".into(), &true.into()));
    let text = testbed.daemon.ok("route show 198.19.2.0/24").unwrap();
    assert_eq!(
        text,
        "198.19.2.0/24 via 198.18.2.2 dev eth1 proto bird metric 32\n\
         198.19.2.0/24 via 198.18.1.2 dev eth0 proto static metric 40  # another route of this prefix comes first\n"
    );
}

/// Frames of many flows from beyond A to what is beyond B.
fn flows4(count: u16) -> Vec<Frame> {
    (0..count).map(|port| Testbed::frame4(0, 1).udp(1024 + port, 9)).collect()
}

#[test]
fn several_next_hops_share_the_flows_and_objects_change_without_their_routes() {
    require!(skip::forwarder());
    let lab = Lab::router().links(4).static_neighbours().build().unwrap();
    lab.router.sysctl("ipv4/fib_multipath_hash_policy", "1").unwrap();
    let all = "--iface eth0,eth1,eth2,eth3 --routes kernel";
    let testbed = Testbed::on(lab, all).unwrap();
    let prefix = format!("{}/24", beyond4(1, 0));
    let (one, two, three) = (host4(1), host4(2), host4(3));
    let share = |links: &[u8]| {
        let frames = flows4(200);
        let (links_of, Counted { xdp, linux }) =
            testbed.counted(|| testbed.scatter(0, links, &frames)).unwrap();
        assert_eq!((xdp.interface("eth0").redirected(), linux.v4), (200, 0));
        links
            .iter()
            .map(|link| links_of.iter().map(|it| usize::from(it == link)).sum::<usize>())
            .collect::<Vec<_>>()
    };

    ip(&testbed, &format!("route add {prefix} nexthop via {one} nexthop via {two} weight 3"));
    wait_for(&testbed, &prefix, "two next hops", |it| it[0]["nexthops"].get(1).is_some());
    let shares = share(&[1, 2]);
    assert!((20..=80).contains(&shares[0]), "a quarter: {shares:?}");

    ip(&testbed, &format!("nexthop add id 11 via {one} dev eth1"));
    ip(&testbed, &format!("nexthop add id 12 via {two} dev eth2"));
    ip(&testbed, "nexthop add id 20 group 11/12");
    ip(&testbed, &format!("route replace {prefix} nhid 20"));
    wait_for(&testbed, &prefix, "an object", |it| it[0]["nhid"] == 20);
    let shares = share(&[1, 2]);
    assert!((60..=140).contains(&shares[0]), "one half: {shares:?}");

    // The object changes, and no route is told.
    ip(&testbed, &format!("nexthop replace id 12 via {three} dev eth3"));
    wait_for(&testbed, &prefix, "the third host", |it| it[0]["nexthops"][1]["dev"] == "eth3");
    let shares = share(&[1, 3]);
    assert!((60..=140).contains(&shares[0]), "one half: {shares:?}");
    // A resilient group.
    ip(&testbed, "nexthop add id 21 group 11/12 type resilient buckets 32");
    ip(&testbed, &format!("route replace {prefix} nhid 21"));
    wait_for(&testbed, &prefix, "a resilient group", |it| it[0]["nhid"] == 21);
    assert_eq!(share(&[1, 3]).iter().sum::<usize>(), 200);

    // The far end of a member is gone: Linux takes it out without a word.
    testbed.lab.hosts[3].ip("link set eth0 down").unwrap();
    wait_for(&testbed, &prefix, "one next hop", |it| {
        it[0]["gateway"] == one.to_string() || it[0]["nexthops"][1]["state"] == "unusable"
    });
    assert_eq!(share(&[1]), [200]);
    testbed.lab.hosts[3].ip("link set eth0 up").unwrap();
    // It says once more that its far end was down.
    let _ = testbed.wire(3).arrived(is_traffic);
    ip(&testbed, "nexthop del id 21");
    wait_for_gateway(&testbed, &prefix, None);
    nobody_forwards(&testbed, &flows4(1)[0], Reason::NoRoute);
}

#[test]
fn what_a_link_takes_with_it_does_not_come_back_with_it() {
    require!(skip::forwarder());
    let testbed = follower(Lab::router().links(3));
    let (prefix, shorter) = ("198.19.2.0/24", "198.19.0.0/16");
    let frame = Testbed::frame4(0, 1).udp(1024, 9);
    ip(&testbed, &format!("route add {prefix} via {}", host4(1)));
    ip(&testbed, &format!("route add {shorter} via {}", host4(2)));
    wait_for_gateway(&testbed, shorter, Some(&host4(2).to_string()));
    forwards(&testbed, &frame, 1);
    ip(&testbed, "link set eth1 down");
    // Linux says nothing of it.
    wait_for_gateway(&testbed, prefix, None);
    forwards(&testbed, &frame, 2);
    ip(&testbed, "link set eth1 up");
    wait_for(&testbed, "198.18.2.0/24", "the connected route", |it| it[0]["protocol"] == "kernel");
    assert_eq!(shown(&testbed, prefix).unwrap(), serde_json::json!([]));
    forwards(&testbed, &frame, 2);
}

#[test]
fn a_neighbour_that_linux_has_not_asked_for_is_asked_for_before_the_first_packet() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&Lab::router(), "--routes kernel").unwrap();
    for (route, frame) in
        routes_beyond(1).iter().zip([Testbed::frame4(0, 1), Testbed::frame6(0, 1)])
    {
        ip(&testbed, &format!("route add {route}"));
        let prefix = route.split(' ').next().unwrap();
        wait_for(&testbed, prefix, "it to forward", |it| it[0]["state"] == "forwarding");
        forwards(&testbed, &frame.udp(1024, 9), 1);
    }
}

#[test]
fn a_route_by_an_interface_that_is_not_ours_is_left_to_linux() {
    require!(skip::forwarder());
    let lab = Lab::router().links(3).static_neighbours().build().unwrap();
    let testbed = Testbed::on(lab, "--iface eth0,eth1 --routes kernel").unwrap();
    let prefix = "198.19.2.0/24";
    let frame = Testbed::frame4(0, 1).udp(1024, 9);
    ip(&testbed, &format!("route add {prefix} via {}", host4(2)));
    wait_for_gateway(&testbed, prefix, Some(&host4(2).to_string()));
    left_to_linux(&testbed, &frame, Reason::NoPort, 2);
    // Of several, Linux chooses: it may well be that one.
    let (one, two) = (host4(1), host4(2));
    ip(&testbed, &format!("route replace {prefix} nexthop via {one} nexthop via {two}"));
    wait_for(&testbed, prefix, "two next hops", |it| it[0]["skipped"] == "egress");
    let send = || {
        testbed.wire(0).send(&frame.bytes())?;
        wait_until("it to come out", SOON, || {
            let arrived =
                |link: u8| testbed.wire(link).arrived(forwarder_tests::testbed::is_traffic);
            Ok((arrived(1)?.len() + arrived(2)?.len() == 1).then_some(()))
        })
    };
    let ((), Counted { xdp, linux }) = testbed.counted(send).unwrap();
    assert_eq!((xdp.interface("eth0").passed(Reason::Punt), linux.v4), (1, 1));
}
