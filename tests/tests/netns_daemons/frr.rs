//! FRR on the router: routes learnt by BGP become nexthop objects and groups of them.

use forwarder_common::verdict::Reason;
use forwarder_tests::{
    frame::Frame,
    lab::{Lab, host_mac, router_mac},
    require,
    routing::{Bird, Frr},
    skip,
    testbed::{Testbed, beyond4},
};

use crate::{
    losses::{losses, say},
    site::{BOTH, FAR4, FAR6, Site, carries, carries_far, cut, flows, linux_routes, mend},
    tables::assert_equal_tables,
};

const NEEDS: [&str; 3] = ["zebra", "bgpd", "bird"];
/// IPv4 that is announced with next hops of IPv6 (RFC 8950).
const OVER6: &str = "198.19.101.0/24";

const BGPD: &str = "\
log stdout informational
router bgp 64512
 bgp router-id 198.18.0.1
 no bgp ebgp-requires-policy
 bgp bestpath as-path multipath-relax
 timers bgp 3 9
 neighbor 198.18.2.2 remote-as 64513
 neighbor 198.18.2.2 timers connect 1
 neighbor 198.18.3.2 remote-as 64513
 neighbor 198.18.3.2 timers connect 1
 neighbor 2001:db8:2::2 remote-as 64513
 neighbor 2001:db8:2::2 timers connect 1
 neighbor 2001:db8:2::2 capability extended-nexthop
 neighbor 2001:db8:3::2 remote-as 64513
 neighbor 2001:db8:3::2 timers connect 1
 neighbor 2001:db8:3::2 capability extended-nexthop
 address-family ipv4 unicast
  maximum-paths 8
  neighbor 2001:db8:2::2 activate
  neighbor 2001:db8:3::2 activate
 exit-address-family
 address-family ipv6 unicast
  maximum-paths 8
  neighbor 2001:db8:2::2 activate
  neighbor 2001:db8:3::2 activate
 exit-address-family
";

/// BIRD's configuration on the host at a link, which announces these networks.
fn peer(link: u8, announced: &[&str]) -> String {
    let net = link + 1;
    let routes = |wanted: &dyn Fn(&&&str) -> bool| {
        let routes = announced.iter().filter(wanted);
        routes.flat_map(|it| ["route ", it, " blackhole; "]).collect::<String>()
    };
    let only4 = routes(&|it| !it.contains(':') && **it != OVER6);
    let over6 = routes(&|it| **it == OVER6);
    let only6 = routes(&|it| it.contains(':'));
    format!(
        "\
router id 198.18.0.{net};
log stderr all;
ipv4 table over6;
protocol device {{}}
protocol static {{ ipv4; {only4} }}
protocol static {{ ipv4 {{ table over6; }}; {over6} }}
protocol static {{ ipv6; {only6} }}
template bgp uplink {{
    local as 64513; neighbor as 64512; hold time 9; keepalive time 3;
    connect retry time 1; connect delay time 1; error wait time 1, 2;
}}
protocol bgp b4 from uplink {{
    source address 198.18.{net}.2; neighbor 198.18.{net}.1;
    ipv4 {{ import none; export all; next hop self; }};
}}
protocol bgp b6 from uplink {{
    source address 2001:db8:{net}::2; neighbor 2001:db8:{net}::1;
    ipv6 {{ import none; export all; next hop self; }};
    ipv4 {{ table over6; import none; export all; extended next hop on; next hop self; }};
}}
"
    )
}

const ALL: [&str; 3] = [FAR4, FAR6, OVER6];

/// Dropped in this order: the peers are not to withdraw from a router that is watched.
struct Daemons {
    frr: Frr,
    peers: Vec<Bird>,
}

impl Daemons {
    fn start(lab: &Lab) -> Self {
        let peer =
            |link: u8| Bird::start(&lab.hosts[usize::from(link)], &peer(link, &ALL)).unwrap();
        let peers = BOTH.map(peer).into();
        Self { frr: frr(lab), peers }
    }

    fn announce(&self, link: u8, announced: &[&str]) {
        self.peers[usize::from(link) - 1].configure(&peer(link, announced)).unwrap();
    }
}

fn frr(lab: &Lab) -> Frr {
    Frr::start(&lab.router, &[("bgpd", BGPD)]).unwrap()
}

/// To the network that is announced with next hops of IPv6.
fn over6() -> Vec<Frame> {
    let to = std::net::Ipv4Addr::new(198, 19, 101, 1);
    flows(&Frame::ipv4(beyond4(0, 1), to).macs(host_mac(0), router_mac(0)))
}

#[test]
fn groups_of_frr_and_ipv4_over_ipv6_are_followed() {
    require!(skip::routing_daemons(&NEEDS));
    let site = Site::with_forwarder();
    let testbed = site.forwarder().unwrap();
    // The sessions come up by interfaces that carry our program.
    let daemons = Daemons::start(&testbed.lab);
    site.wait_for_far(&BOTH);
    site.wait_for(OVER6, &BOTH);
    for prefix in ALL {
        let route = &linux_routes(&testbed.lab.router, prefix)[0];
        assert_eq!(route["protocol"], "bgp", "{route:#}");
        let id = route["nhid"].as_u64().expect("an object");
        let object = testbed.lab.router.ip(&format!("nexthop show id {id}")).unwrap();
        assert!(object.contains(" group "), "{object}");
    }
    carries_far(testbed, &BOTH);
    carries(testbed, &over6(), &BOTH);
    assert_equal_tables(testbed);

    // What is the router's own went up: both daemons speak BGP with a TTL of 1 to direct neighbours.
    // Nothing else came by those interfaces.
    let stats = testbed.daemon.stats().unwrap();
    for port in ["eth1", "eth2"].map(|name| stats.interface(name)) {
        let own = port.passed(Reason::TtlExpired) + port.passed(Reason::Local);
        assert!(own >= 10, "{port:#?}");
        assert_eq!(port.redirected(), 0, "{port:#?}");
    }
    // One of the peers changes its mind, then both do.
    daemons.announce(2, &[FAR6]);
    site.wait_for(FAR4, &[1]);
    site.wait_for(OVER6, &[1]);
    carries(testbed, &flows(&Testbed::frame4(0, 1)), &[1]);
    carries(testbed, &over6(), &[1]);
    carries(testbed, &flows(&Testbed::frame6(0, 1)), &BOTH);
    daemons.announce(1, &[FAR6]);
    site.wait_for(FAR4, &[]);
    site.wait_for(OVER6, &[]);
    assert_equal_tables(testbed);
}

#[test]
fn what_a_peer_takes_back_costs_no_frame() {
    require!(skip::routing_daemons(&NEEDS));
    for site in [Site::with_forwarder(), Site::linux_alone()] {
        let daemons = Daemons::start(site.lab());
        site.wait_for_far(&BOTH);
        let gone = losses(&site, || daemons.announce(2, &[]), || site.wait_for_far(&[1]));
        say("BGP: a peer withdraws", &site, gone);
        let back = losses(&site, || daemons.announce(2, &ALL), || site.wait_for_far(&BOTH));
        say("BGP: a peer announces", &site, back);
        assert_eq!((gone.lost, back.lost), (0, 0), "{}", site.name());
    }
}

#[test]
fn a_link_that_flaps_costs_what_it_costs_linux() {
    const ONLY_C: &str = "198.19.103.0/24";
    require!(skip::routing_daemons(&NEEDS));
    for site in [Site::with_forwarder(), Site::linux_alone()] {
        let daemons = Daemons::start(site.lab());
        daemons.announce(2, &[FAR4, FAR6, ONLY_C]);
        site.wait_for(ONLY_C, &[2]);
        site.wait_for_far(&BOTH);
        let gone = || {
            site.wait_for(ONLY_C, &[]);
            site.wait_for_far(&[1]);
        };
        say("FRR: a link loses its carrier", &site, losses(&site, || cut(site.lab(), 2), gone));
        // FRR 8.4 takes its groups for whole again, which Linux has taken a member out of without a
        // word: what counts is Linux's table.
        let back = || site.wait_for(ONLY_C, &[2]);
        say("FRR: and gets it back", &site, losses(&site, || mend(site.lab(), 2), back));
        if let Some(testbed) = site.forwarder() {
            assert_equal_tables(testbed);
            for (prefix, far) in [(FAR4, Testbed::frame4(0, 1)), (FAR6, Testbed::frame6(0, 1))] {
                carries(testbed, &flows(&far), &site.links(prefix));
            }
        }
    }
}

#[test]
fn what_frr_has_left_is_followed_until_it_starts_again() {
    const ONCE: &str = "198.19.104.0/24";
    const NEW: &str = "198.19.105.0/24";
    require!(skip::routing_daemons(&NEEDS));
    for site in [Site::with_forwarder(), Site::linux_alone()] {
        let Daemons { frr: first, peers } = Daemons::start(site.lab());
        peers[0].configure(&peer(1, &[FAR4, FAR6, ONCE])).unwrap();
        site.wait_for(ONCE, &[1]);
        site.wait_for_far(&BOTH);
        // Killed, it leaves its routes behind.
        let dead = losses(&site, || drop(first), || site.wait_for_far(&BOTH));
        say("FRR: it is killed", &site, dead);
        assert_eq!(dead.lost, 0, "leftovers forward");
        // Meanwhile one network goes and another comes.
        for (link, peer_of) in BOTH.into_iter().zip(&peers) {
            peer_of.configure(&peer(link, &[FAR4, FAR6, NEW])).unwrap();
        }
        let mut again = None;
        let start = || again = Some(frr(site.lab()));
        // It forgets what it finds and learns all anew; FRR 8.4 now and then leaves something in
        // Linux's table, so that this alone says what is there in the end.
        let learnt = || {
            site.wait_for(NEW, &BOTH);
            site.wait_for_far(&BOTH);
        };
        say("FRR: it starts again", &site, losses(&site, start, learnt));
        assert!(again.is_some());
        if let Some(testbed) = site.forwarder() {
            carries_far(testbed, &BOTH);
            assert_equal_tables(testbed);
        }
    }
}
