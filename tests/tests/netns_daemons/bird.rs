//! BIRD on the router: static routes and OSPF, written to Linux by its kernel protocol.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    lab::Lab,
    require,
    routing::Bird,
    skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

use crate::{
    losses::{losses, say},
    site::{BOTH, FAR4, FAR6, Site, carries, carries_far, cut, flows, linux_routes, mend},
    tables::assert_equal_tables,
};

const NEEDS: [&str; 1] = ["bird"];
const KERNEL: &str = "\
router id 198.18.0.1;
log stderr all;
protocol device { scan time 1; }
protocol kernel { ipv4 { import none; export all; }; merge paths on; metric 32; }
protocol kernel { ipv6 { import none; export all; }; merge paths on; metric 32; }
";

/// The router with static routes.
fn statics(routes4: &str, routes6: &str) -> String {
    let statics = |family, routes| format!("protocol static {{ {family}; {routes} }}\n");
    [KERNEL, &statics("ipv4", routes4), &statics("ipv6", routes6)].concat()
}

/// OSPFv2 and OSPFv3 on these interfaces, with these networks at the host itself.
fn ospf(interfaces: &str, [stub4, stub6]: [&str; 2]) -> String {
    let ospf = |version, family, stub| {
        format!(
            "protocol ospf {version} {{ {family} {{ import all; export none; }}; area 0 {{ {stub}
                interface {interfaces} {{ type ptp; hello 1; dead count 4; cost 10; }};
            }}; }}\n"
        )
    };
    ospf("v2", "ipv4", stub4) + &ospf("v3", "ipv6", stub6)
}

/// The host at a link, which has the far networks.
fn peer(lab: &Lab, link: u8) -> Bird {
    let stub = |prefix| format!("stubnet {prefix} {{ cost 10; }};");
    let (stub4, stub6) = (stub(FAR4), stub(FAR6));
    let head = format!("router id 198.18.0.{};\nlog stderr all;\nprotocol device {{}}\n", link + 1);
    let config = head + &ospf("\"eth0\"", [&stub4, &stub6]);
    Bird::start(&lab.hosts[usize::from(link)], &config).unwrap()
}

fn router(lab: &Lab) -> Bird {
    let config = KERNEL.to_owned() + &ospf("\"eth1\", \"eth2\"", ["", ""]);
    Bird::start(&lab.router, &config).unwrap()
}

const BOTH4: &str = "route 198.19.2.0/24 via 198.18.2.2 via 198.18.3.2;";
const BOTH6: &str = "route 2001:db8:102::/48 via 2001:db8:2::2 via 2001:db8:3::2;";

#[test]
fn static_routes_of_bird_come_change_and_go() {
    require!(skip::routing_daemons(&NEEDS));
    let site = Site::with_forwarder();
    let testbed = site.forwarder().unwrap();
    let bird = Bird::start(&testbed.lab.router, &statics(BOTH4, BOTH6)).unwrap();
    site.wait_for_far(&BOTH);
    let route = &linux_routes(&testbed.lab.router, FAR4)[0];
    assert_eq!((&route["protocol"], &route["metric"]), (&"bird".into(), &32.into()));
    carries_far(testbed, &BOTH);

    let one4 = "route 198.19.2.0/24 via 198.18.2.2; route 198.19.104.0/24 unreachable;";
    let one6 = "route 2001:db8:102::/48 via 2001:db8:3::2;";
    bird.configure(&statics(one4, one6)).unwrap();
    site.wait_for(FAR4, &[1]);
    site.wait_for(FAR6, &[2]);
    carries(testbed, &flows(&Testbed::frame4(0, 1)), &[1]);
    carries(testbed, &flows(&Testbed::frame6(0, 1)), &[2]);
    wait_until("what is unreachable", SOON, || {
        let routes = testbed.daemon.forwarder().json("route show exact 198.19.104.0/24")?;
        Ok((routes[0]["skipped"] == "unreachable").then_some(()))
    })
    .unwrap();
    bird.configure(&statics("", "")).unwrap();
    site.wait_for_far(&[]);
    assert_equal_tables(testbed);
}

#[test]
fn routes_of_ospf_are_followed() {
    require!(skip::routing_daemons(&NEEDS));
    let site = Site::with_forwarder();
    let testbed = site.forwarder().unwrap();
    let _peers = BOTH.map(|link| peer(&testbed.lab, link));
    let _router = router(&testbed.lab);
    // Both adjacencies of both families come up by interfaces that carry our program.
    site.wait_for_far(&BOTH);
    carries_far(testbed, &BOTH);
    assert_equal_tables(testbed);
    let stats = testbed.daemon.stats().unwrap();
    for port in ["eth1", "eth2"].map(|name| stats.interface(name)) {
        // Hellos of both families go to groups, where database descriptions go to us alone.
        assert!(port.passed(Reason::GroupMac) >= 4, "{port:#?}");
        assert_eq!(port.redirected(), 0, "{port:#?}");
    }
}

#[test]
fn a_link_that_ospf_loses_costs_what_it_costs_linux() {
    require!(skip::routing_daemons(&NEEDS));
    for site in [Site::with_forwarder(), Site::linux_alone()] {
        let lab = site.lab();
        let _peers = BOTH.map(|link| peer(lab, link));
        let _router = router(lab);
        site.wait_for_far(&BOTH);
        let down = || cut(lab, 2);
        let gone = losses(&site, down, || site.wait_for_far(&[1]));
        say("OSPF: a link loses its carrier", &site, gone);
        // BIRD's OSPFv3 does not come back to an interface of C's that had lost its addresses.
        let back = losses(&site, || mend(lab, 2), || site.wait_for(FAR4, &BOTH));
        say("OSPF: and gets it back", &site, back);
        assert_eq!(back.lost, 0, "{}", site.name());
        if let Some(testbed) = site.forwarder() {
            carries(testbed, &flows(&Testbed::frame4(0, 1)), &BOTH);
            assert_equal_tables(testbed);
        }
    }
}

#[test]
fn what_bird_has_left_is_followed_and_what_it_then_takes_away_too() {
    require!(skip::routing_daemons(&NEEDS));
    for site in [Site::with_forwarder(), Site::linux_alone()] {
        let lab = site.lab();
        let more = format!("{BOTH4} route 198.19.104.0/24 via 198.18.2.2;");
        let first = Bird::start(&lab.router, &statics(&more, BOTH6)).unwrap();
        site.wait_for("198.19.104.0/24", &[1]);
        site.wait_for_far(&BOTH);
        let dead = losses(&site, || drop(first), || site.wait_for_far(&BOTH));
        say("BIRD: it is killed", &site, dead);
        site.wait_for("198.19.104.0/24", &[1]);
        let mut again = None;
        let start = || again = Some(Bird::start(&lab.router, &statics(BOTH4, BOTH6)).unwrap());
        let back = losses(&site, start, || site.wait_for("198.19.104.0/24", &[]));
        say("BIRD: it starts again", &site, back);
        // What it finds as it would write it stays where it is.
        assert_eq!((dead.lost, back.lost), (0, 0), "{}", site.name());
        assert!(again.is_some());
        if let Some(testbed) = site.forwarder() {
            carries_far(testbed, &BOTH);
            assert_equal_tables(testbed);
        }
    }
}
