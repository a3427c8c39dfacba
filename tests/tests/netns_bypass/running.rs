//! What comes up while it runs stops what it is for within a second; when it goes, so does that.

use std::time::{Duration, Instant};

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::Frame,
    lab::Lab,
    require, skip,
    testbed::{SOON, Testbed},
    wait::wait_until,
};

use crate::{chain, nft, sh};

const SECOND: Duration = Duration::from_secs(1);
/// Frames that are sent to see what becomes of them.
const FRAMES: u16 = 20;

/// IPv4, IPv6: whether each is stopped.
type Stopped = [bool; 2];
const V4: Stopped = [true, false];
const V6: Stopped = [false, true];
const BOTH: Stopped = [true, true];
const NONE: Stopped = [false, false];

struct Scene(Testbed);

impl Scene {
    fn new(options: &str) -> Self {
        let layout = Lab::router().forwarding(false).static_neighbours();
        let scene = Self(Testbed::with_routes(&layout, options).unwrap());
        scene.is(NONE);
        scene
    }

    /// Runs commands on the router; a second later at most these families stand still.
    fn after(&self, commands: &str, stopped: Stopped) {
        sh(&self.0.lab.router, commands).unwrap();
        let since = Instant::now();
        let what = format!("{stopped:?} after {commands}");
        wait_until(&what, SOON, || Ok((self.tells() == stopped).then_some(()))).unwrap();
        assert!(since.elapsed() < SECOND, "{:?}: {what}", since.elapsed());
        self.is(stopped);
    }

    /// As `status` says it.
    fn tells(&self) -> Stopped {
        let status = self.0.daemon.ok("status").unwrap();
        ["IPv4", "IPv6"].map(|family| {
            let says = |line: &str| {
                let stops = line.split_once(" is forwarded in XDP, which would bypass ");
                stops.is_some_and(|(families, _)| families.contains(family))
            };
            status.lines().any(says)
        })
    }

    /// As frames tell it: each comes out, or goes up as filtered, and nothing is lost in between.
    fn is(&self, stopped: Stopped) {
        let testbed = &self.0;
        for (frame, is_stopped) in [frame4(), frame6()].iter().zip(stopped) {
            let frames: Vec<_> =
                (0..FRAMES).map(|number| frame.clone().udp(number, 2).payload(b"one")).collect();
            if !is_stopped {
                let send = || testbed.send(0, 1, &frames);
                let (received, counted) = testbed.counted(send).unwrap();
                let expected: Vec<_> =
                    frames.iter().map(|frame| Testbed::forwarded(frame, 1)).collect();
                assert_eq!(received, expected);
                let ingress = counted.xdp.interface("eth0").ingress();
                assert_eq!(ingress.redirected.packets, u64::from(FRAMES), "{ingress:#?}");
                continue;
            }
            let before = testbed.daemon.stats().unwrap();
            for frame in &frames {
                testbed.wire(0).send(&frame.bytes()).unwrap();
            }
            wait_until("the frames to be passed as filtered", SOON, || {
                let since = testbed.daemon.stats()?.since(&before);
                let passed = since.interface("eth0").passed(Reason::Filtered);
                Ok((passed == u64::from(FRAMES) && since.redirected() == 0).then_some(()))
            })
            .unwrap();
            assert_eq!(testbed.wire(1).arrived(|_| true).unwrap(), [[0; 0]; 0]);
        }
    }
}

fn frame4() -> Frame {
    Testbed::frame4(0, 1)
}

fn frame6() -> Frame {
    Testbed::frame6(0, 1)
}

#[test]
fn rules_of_nftables_come_and_go() {
    require!(skip::forwarder());
    require!(skip::command("nft", "--version"));
    let scene = Scene::new("");
    let gone = |family: &str| format!("nft delete table {family} t");
    for (family, hook, rules, stopped) in [
        ("ip", "postrouting", "masquerade;", V4),
        ("inet", "prerouting", "meta mark set 7;", BOTH),
        ("ip6", "forward", "policy drop;", V6),
        ("netdev", "ingress device eth1", "meta protocol ip6 drop;", V6),
    ] {
        scene.after(&chain(family, hook, rules), stopped);
        scene.after(&gone(family), NONE);
    }

    // What is not for these interfaces is none of our business, until it is.
    let tables = "table ip t { map m { type ifname : verdict; }
                  chain c { type filter hook forward priority 0; iifname vmap @m; }; }";
    scene.after(&nft(tables), NONE);
    scene.after("nft 'add element ip t m { \"docker0\" : drop }'", NONE);
    scene.after("nft 'add element ip t m { \"eth0\" : drop }'", V4);
    scene.after("nft 'delete element ip t m { \"eth0\" }'", NONE);
    scene.after("nft 'add element ip t m { \"uplink\" : drop }'", NONE);
    scene.after("ip link set eth1 name uplink", V4);
    scene.after("ip link set uplink name eth1", NONE);
    let log = scene.0.daemon.stderr();
    for line in [
        "no IPv4 is forwarded in XDP, which would bypass rule 2 (masquerade) of nftables chain ip t c",
        "IPv4 is forwarded in XDP again",
        "no IPv4 or IPv6 is forwarded in XDP",
    ] {
        assert!(log.contains(line), "no '{line}' in {log}");
    }
}

#[test]
fn rules_of_iptables_tc_and_xfrm_come_and_go() {
    require!(skip::forwarder());
    require!(skip::command("iptables-legacy", "--version"));
    require!(skip::command("tc", "-Version"));
    let scene = Scene::new("");
    let filter = "prio 7 protocol ipv6 u32 match u32 0 0";
    let policy = "src 198.19.1.0/24 dst 198.19.2.0/24 dir fwd";
    for (add, delete, stopped) in [
        (
            "iptables-legacy -A FORWARD -j DROP".to_owned(),
            "iptables-legacy -D FORWARD -j DROP".to_owned(),
            V4,
        ),
        (
            "tc qdisc add dev eth1 root handle 1: htb".to_owned(),
            "tc qdisc del dev eth1 root".to_owned(),
            BOTH,
        ),
        (
            format!("tc qdisc add dev eth0 clsact; tc filter add dev eth0 ingress {filter}"),
            "tc filter del dev eth0 ingress prio 7".to_owned(),
            V6,
        ),
        (format!("ip xfrm policy add {policy}"), format!("ip xfrm policy delete {policy}"), V4),
    ] {
        scene.after(&add, stopped);
        scene.after(&delete, NONE);
    }
}

#[test]
fn what_is_allowed_stops_nothing_and_everything_else_does() {
    require!(skip::forwarder());
    require!(skip::command("nft", "--version"));
    let scene = Scene::new("--bypass=tc,netfilter");
    let note = "XDP bypasses rule 2 (masquerade) of nftables chain ip t c for IPv4, as \
                --bypass=netfilter allows";
    let is_told = |is_told| {
        wait_until("status to tell what is bypassed", SOON, || {
            let status = scene.0.daemon.ok("status")?;
            Ok((status.contains(note) == is_told).then_some(()))
        })
        .unwrap();
        scene.is(NONE);
    };
    sh(&scene.0.lab.router, &chain("ip", "postrouting", "masquerade;")).unwrap();
    is_told(true);
    scene.after("ip xfrm policy setdefault fwd block", BOTH);
    scene.after("ip xfrm policy setdefault fwd accept", NONE);
    sh(&scene.0.lab.router, "nft delete table ip t").unwrap();
    is_told(false);
}

/// With Linux's forwarding, the rule is what happens to the packets.
#[test]
fn a_masquerade_that_comes_later_is_done() {
    require!(skip::forwarder());
    require!(skip::command("nft", "--version"));
    let testbed = Testbed::start(&Lab::router().static_neighbours(), "").unwrap();
    testbed.route("198.18.2.0/24 dev eth1").unwrap();
    let frame = Lab::frame4(0, 1).udp(1000, 2000).payload(b"who am I");
    let expected = Lab::forwarded(&frame, 1);
    // B answers that nobody listens there.
    let comes_out = || {
        testbed.wire(0).send(&frame.bytes()).unwrap();
        wait_until("the packet to come out", SOON, || {
            let arrived = testbed.wire(1).arrived(|bytes| bytes.ends_with(b"who am I"))?;
            Ok(arrived.into_iter().next())
        })
        .unwrap()
    };
    assert_eq!(comes_out(), expected);
    let (source, router) = (26..30, [198, 18, 2, 1]);
    sh(&testbed.lab.router, &chain("ip", "postrouting", "oifname \"eth1\" masquerade;")).unwrap();
    let since = Instant::now();
    while comes_out()[source.clone()] != router {
        assert!(since.elapsed() < SECOND, "not done for a second");
    }
    for _ in 0..FRAMES {
        assert_eq!(comes_out()[source.clone()], router);
    }
    sh(&testbed.lab.router, "nft delete table ip t").unwrap();
    wait_until("XDP to forward", SOON, || {
        Ok((!testbed.daemon.ok("status")?.contains("would bypass")).then_some(()))
    })
    .unwrap();
    assert_eq!(comes_out(), expected);
}

/// A bridge takes what comes in by its ports; and what it was told to send goes up.
#[test]
fn an_interface_that_is_enslaved_later_is_left_to_its_bridge() {
    require!(skip::forwarder());
    let scene = Scene::new("");
    let testbed = &scene.0;
    let passes = |frame: &Frame, reason| {
        let before = testbed.daemon.stats().unwrap();
        testbed.wire(0).send(&frame.clone().udp(1, 2).bytes()).unwrap();
        wait_until("a frame to be passed", SOON, || {
            let since = testbed.daemon.stats()?.since(&before);
            Ok((since.interface("eth0").passed(reason) == 1).then_some(()))
        })
        .unwrap();
    };
    for port in ["eth0", "eth1"] {
        sh(
            &testbed.lab.router,
            &format!("ip link add br0 type bridge; ip link set {port} master br0"),
        )
        .unwrap();
        let route = if port == "eth1" { "unusable" } else { "forwarding" };
        wait_until("the route to know", SOON, || {
            let routes = testbed.daemon.forwarder().json("route show 198.19.2.0/24")?;
            Ok((routes[0]["state"] == route).then_some(()))
        })
        .unwrap();
        for frame in [frame4(), frame6()] {
            passes(&frame, Reason::Enslaved);
        }
        sh(&testbed.lab.router, "ip link del br0").unwrap();
        wait_until("frames to be forwarded again", SOON, || {
            let before = testbed.daemon.stats()?;
            testbed.wire(0).send(&frame4().udp(1, 2).bytes())?;
            wait_until("the frame to be counted", SOON, || {
                let since = testbed.daemon.stats()?.since(&before);
                Ok((since.interface("eth0").ingress().rx.packets > 0).then_some(()))
            })?;
            let since = testbed.daemon.stats()?.since(&before);
            Ok((since.redirected() > 0).then_some(()))
        })
        .unwrap();
        wait_until("them to have come out", SOON, || {
            testbed.wire(1).arrived(|_| true).map(|arrived| (!arrived.is_empty()).then_some(()))
        })
        .unwrap();
    }
}
