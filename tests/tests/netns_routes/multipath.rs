//! Routes with several next hops: which flow leaves by which, proved by the frames that came out.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::Frame,
    lab::{Lab, Layout},
    require, skip,
    testbed::{Counted, SOON, Testbed},
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::{passes, route};

/// The links of B, C and, where there is one, D.
const B: u8 = 1;
const C: u8 = 2;
const D: u8 = 3;
const FLOWS: u16 = 600;
const PREFIXES: [&str; 2] = ["198.19.100.0/24", "2001:db8:200::/48"];

fn layout() -> Layout {
    Lab::router().links(3).forwarding(false)
}

/// Twice as much to C as to B, in both families.
fn with_sets(layout: &Layout) -> Testbed {
    let testbed = Testbed::start(layout, "").unwrap();
    for set in [
        "198.19.100.0/24 nexthop via 198.18.2.2 dev eth1 nexthop via 198.18.3.2 dev eth2 weight 2",
        "2001:db8:200::/48 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2 weight 2",
    ] {
        testbed.route(set).unwrap();
    }
    testbed
}

/// A frame of each flow, to the prefixes.
fn flows() -> [Vec<Frame>; 2] {
    let v4 = |flow: u16| {
        let frame = Testbed::frame4(0, B).v4(|ip| ip.destination = [198, 19, 100, 1].into());
        frame.udp(1000 + flow, 53)
    };
    let v6 = |flow: u16| {
        let to = "2001:db8:200::1".parse().unwrap();
        Testbed::frame6(0, B).v6(|ip| ip.destination = to).tcp(1000 + flow, 443, 16)
    };
    [(0..FLOWS).map(v4).collect(), (0..FLOWS).map(v6).collect()]
}

/// By which link each left, in XDP alone.
fn links(testbed: &Testbed, frames: &[Frame]) -> Vec<u8> {
    let (links, Counted { xdp, linux }) =
        testbed.counted(|| testbed.scatter(0, &[B, C], frames)).unwrap();
    let port = xdp.interface("eth0");
    assert_eq!(port.redirected(), frames.len() as u64, "{port:#?}");
    assert_eq!(linux.v4 + linux.v6, 0);
    links
}

fn count(links: &[u8], link: u8) -> usize {
    links.iter().map(|it| usize::from(*it == link)).sum()
}

/// Waits until a next hop has this state.
fn wait_for_member(testbed: &Testbed, prefix: &str, number: usize, state: &str) {
    let what = format!("next hop {number} of {prefix} to be {state}");
    wait_until(&what, SOON, || {
        let route = route(testbed, prefix)?;
        Ok((route["nexthops"][number]["state"] == state).then_some(()))
    })
    .unwrap();
}

#[test]
fn flows_are_spread_by_weight_and_each_keeps_to_its_link() {
    require!(skip::forwarder());
    let testbed = with_sets(&layout().static_neighbours());
    for frames in flows() {
        let first = links(&testbed, &frames);
        let by_c = count(&first, C);
        // Two thirds; six standard deviations are 69.
        assert!(by_c.abs_diff(400) < 69, "{by_c} of {FLOWS} by C");
        let again: Vec<_> = frames.iter().map(|frame| frame.clone().payload(b"again")).collect();
        assert_eq!(links(&testbed, &again), first);
    }
}

#[test]
fn a_member_that_does_not_answer_gives_its_flows_away_and_gets_them_back() {
    require!(skip::forwarder());
    let testbed = with_sets(&layout());
    let before = flows().map(|frames| links(&testbed, &frames));
    // C is silent, and the router forgets it.
    let c = &testbed.lab.hosts[usize::from(C)];
    for (address, length) in [("198.18.3.2", 24), ("2001:db8:3::2", 64)] {
        c.ip(&format!("address del {address}/{length} dev eth0")).unwrap();
        testbed.lab.router.ip(&format!("neigh del {address} dev eth2")).unwrap();
    }
    for (prefix, (frames, before)) in PREFIXES.iter().zip(flows().iter().zip(&before)) {
        wait_for_member(&testbed, prefix, 1, "unusable");
        assert_eq!(route(&testbed, prefix).unwrap()["nexthops"][1]["reason"], "neighbour_failed");
        assert!(before.contains(&C) && links(&testbed, frames).iter().all(|link| *link == B));
    }
    for address in ["198.18.3.2/24", "2001:db8:3::2/64"] {
        c.ip(&format!("address add {address} dev eth0 nodad")).unwrap();
    }
    for (prefix, (frames, before)) in PREFIXES.iter().zip(flows().iter().zip(&before)) {
        wait_for_member(&testbed, prefix, 1, "forwarding");
        assert_eq!(links(&testbed, frames), *before);
    }
}

#[test]
fn a_link_that_goes_down_moves_its_own_flows_alone() {
    require!(skip::forwarder());
    let layout = Lab::router().links(4).forwarding(false).static_neighbours();
    let mut testbed = Testbed::start(&layout, "").unwrap();
    let hops = |third: u8| format!(" nexthop via 198.18.{third}.2 dev eth{}", third - 1);
    let set: String = (2..=4).map(hops).collect();
    testbed.route(&format!("198.19.100.0/24{set}")).unwrap();
    let [frames, _] = flows();
    let all = [B, C, D];
    let before = testbed.scatter(0, &all, &frames).unwrap();
    assert!(all.iter().all(|link| count(&before, *link) > 130), "{before:?}");

    // The first: what the others have would move up, if shares were cut anew.
    let b = testbed.lab.hosts[usize::from(B)].clone();
    b.ip("link set eth0 down").unwrap();
    wait_for_member(&testbed, PREFIXES[0], 0, "unusable");
    let without = testbed.scatter(0, &[C, D], &frames).unwrap();
    let kept = before.iter().zip(&without).filter(|(was, _)| **was != B);
    assert!(kept.into_iter().all(|(was, is)| was == is), "{before:?}\n{without:?}");
    let moved = |to: u8| before.iter().zip(&without).filter(|it| *it == (&B, &to)).count();
    assert!(moved(C) > 50 && moved(D) > 50, "{} and {}", moved(C), moved(D));

    b.ip("link set eth0 up").unwrap();
    // The socket of a wire does not survive this.
    testbed.wires[usize::from(B)] = b.wire("eth0").unwrap();
    wait_for_member(&testbed, PREFIXES[0], 0, "forwarding");
    assert_eq!(testbed.scatter(0, &all, &frames).unwrap(), before);
}

#[test]
fn a_member_more_takes_its_share_and_moves_no_other_flow() {
    require!(skip::forwarder());
    let layout = Lab::router().links(4).forwarding(false).static_neighbours();
    let testbed = Testbed::start(&layout, "").unwrap();
    for set in [
        "198.19.100.0/24 nexthop via 198.18.2.2 nexthop via 198.18.3.2",
        "2001:db8:200::/48 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2",
    ] {
        testbed.route(set).unwrap();
    }
    let command = |words: &str| testbed.daemon.ok(&format!("route {words}")).unwrap();
    let all = [B, C, D];
    let links = |frames: &[Frame]| testbed.scatter(0, &all, frames).unwrap();
    for ((prefix, by_d), frames) in
        PREFIXES.iter().zip(["198.18.4.2", "2001:db8:4::2"]).zip(flows())
    {
        let two = links(&frames);
        // A half; six standard deviations are 74.
        assert!(count(&two, B).abs_diff(300) < 74 && !two.contains(&D), "{two:?}");

        command(&format!("append {prefix} via {by_d} --wait 3"));
        let three = links(&frames);
        assert!(count(&three, D).abs_diff(200) < 70, "{three:?}");
        assert!(two.iter().zip(&three).all(|(was, is)| was == is || *is == D));
        let from = |link: u8| two.iter().zip(&three).filter(|it| *it == (&link, &D)).count();
        assert!(from(B) > 50 && from(C) > 50, "{} and {}", from(B), from(C));

        command(&format!("del {prefix} via {by_d}"));
        let left = links(&frames);
        assert!(count(&left, B).abs_diff(300) < 74 && !left.contains(&D), "{left:?}");
        assert!(three.iter().zip(&left).all(|(was, is)| was == is || *was == D));
    }
}

#[test]
fn where_no_member_can_be_used_the_reason_is_told() {
    require!(skip::forwarder());
    let testbed = with_sets(&layout().static_neighbours());
    let router = &testbed.lab.router;
    router.ip("link set eth1 down").unwrap();
    router.ip("link set eth2 down").unwrap();
    for (prefix, frames) in PREFIXES.iter().zip(flows()) {
        wait_for_member(&testbed, prefix, 0, "unusable");
        wait_for_member(&testbed, prefix, 1, "unusable");
        passes(&testbed, &frames[0], Reason::EgressDown);
    }
    let status = testbed.daemon.forwarder().json("status").unwrap();
    assert_eq!(status["routes_waiting"], 2);
}

#[test]
fn all_fragments_of_a_packet_leave_by_one_link() {
    require!(skip::forwarder());
    let testbed = with_sets(&layout().static_neighbours());
    let v4 = |host: u8| {
        let frame = Testbed::frame4(0, B).v4(|ip| ip.destination = [198, 19, 100, host].into());
        frame.udp(1000 + u16::from(host), 53)
    };
    let v6 = |host: u8| {
        let to = format!("2001:db8:200::{host}").parse().unwrap();
        Testbed::frame6(0, B).v6(|ip| ip.destination = to).udp(1000 + u16::from(host), 53)
    };
    for like in [&v4 as &dyn Fn(u8) -> Frame, &v6] {
        let fragments: Vec<Frame> = (1..=40)
            .flat_map(|host| {
                let part = move |at: u16, more| like(host).fragment(at, more).payload(&[host; 64]);
                [part(0, true), part(9, true), part(17, false)]
            })
            .collect();
        let links = links(&testbed, &fragments);
        assert!(links.chunks(3).all(|of_one| of_one == [of_one[0]; 3]), "{links:?}");
        assert!(links.contains(&B) && links.contains(&C));
    }
}

#[test]
fn sets_are_changed_shown_and_loaded_again() {
    require!(skip::forwarder());
    let testbed = Testbed::start(&layout().static_neighbours(), "").unwrap();
    let forwarder = testbed.daemon.forwarder();
    let append = |next_hop: &str| forwarder.ok(&format!("route append 198.19.100.0/24 {next_hop}"));
    append("via 198.18.2.2 dev eth1").unwrap();
    append("via 198.18.3.2 dev eth2 weight 2").unwrap();
    forwarder
        .ok("route add default nexthop via 2001:db8:2::2 nexthop via fe80::2 dev eth2")
        .unwrap();
    let shown = "\
198.19.100.0/24 proto xdp
\tnexthop via 198.18.2.2 dev eth1 weight 1
\tnexthop via 198.18.3.2 dev eth2 weight 2
default proto xdp
\tnexthop via 2001:db8:2::2 dev eth1 weight 1
\tnexthop via fe80::2 dev eth2 weight 1  # pending: neighbour
";
    let without_states = |text: &str| -> String {
        text.lines().map(|line| line.split("  #").next().unwrap().to_owned() + "\n").collect()
    };
    assert_eq!(without_states(&forwarder.ok("route show").unwrap()), without_states(shown));
    let json = forwarder.json("route show 198.19.100.0/24").unwrap();
    let member = |gateway: &str, dev: &str, weight: u16, mac: &str| {
        json!({
            "gateway": gateway, "dev": dev, "weight": weight, "flags": [], "state": "forwarding",
            "lladdr": mac
        })
    };
    let expected: Value = json!([{
        "dst": "198.19.100.0/24", "protocol": "xdp", "flags": [], "nexthops": [
            member("198.18.2.2", "eth1", 1, "02:00:00:00:02:02"),
            member("198.18.3.2", "eth2", 2, "02:00:00:00:03:02"),
        ]
    }]);
    assert_eq!(json, expected);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("routes");
    std::fs::write(&file, forwarder.ok("route show").unwrap()).unwrap();
    forwarder.ok("route flush all").unwrap();
    forwarder.ok(&format!("route load {}", file.display())).unwrap();
    assert_eq!(without_states(&forwarder.ok("route show").unwrap()), without_states(shown));

    for (command, code, message) in [
        (
            "append 198.19.100.0/24 via 198.18.2.2",
            1,
            "File exists: 198.19.100.0/24 would lead via 198.18.2.2 dev eth1 twice",
        ),
        ("add 198.19.100.0/24 via 198.18.2.2", 1, "exists already"),
        ("add 198.19.101.0/24 nexthop via 198.18.2.2 nexthop via 198.18.2.2", 2, "is there twice"),
        (
            "add 198.19.101.0/24 nexthop via 198.18.2.2 nexthop via 198.18.2.2 dev eth1",
            1,
            "File exists",
        ),
        ("add 198.19.101.0/24 via 198.18.2.2 weight 0", 2, "'0' is not a weight"),
        ("add 198.19.101.0/24 via 198.18.2.2 weight 257", 2, "'257' is not a weight"),
        (
            "add 198.19.101.0/24 nexthop via 198.18.2.2 nexthop dev eth2",
            1,
            "give every next hop its 'via ADDRESS'",
        ),
        (
            "add 198.19.101.0/24 nexthop via 198.18.2.2 nexthop via 198.18.9.2",
            1,
            "198.18.9.2 is on no interface",
        ),
        (
            "del 198.19.100.0/24 via 198.18.2.9",
            1,
            "no such route: 198.19.100.0/24 via 198.18.2.9; it is via 198.18.2.2 dev eth1, via 198.18.3.2 dev eth2 weight 2",
        ),
    ] {
        let refused = forwarder.call(&format!("route {command}")).unwrap();
        assert_eq!((refused.code(), refused.stdout.as_str()), (code, ""), "{command}");
        assert!(refused.stderr.contains(message), "{command}: {}", refused.stderr);
    }
    forwarder.ok("route del 198.19.100.0/24 dev eth1").unwrap();
    assert_eq!(
        forwarder.ok("-4 route show").unwrap(),
        "198.19.100.0/24 via 198.18.3.2 dev eth2 weight 2 proto xdp\n"
    );
    let [frames, _] = flows();
    assert!(links(&testbed, &frames[..64]).iter().all(|link| *link == C));
}
