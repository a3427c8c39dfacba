//! The main table, nexthop objects and rules: after whatever has happened, what was told is what is.

use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::PATIENCE;
use crate::{
    netlink::{
        Follow, Subscription,
        event::{Event, KernelRoute, Next, Rule},
        namespace::Namespace,
    },
    prefix::{Family, Prefix},
    rib::{Dirty, Rib},
};

/// Two links and their far ends, with addresses of which gateways are neighbours.
const LINKS: &str = "ip link add v0 type veth peer name w0
    ip link add v1 type veth peer name w1
    for v in 0 1; do
      ip addr add 198.18.$v.1/24 dev v$v
      ip addr add 2001:db8:$v::1/64 dev v$v nodad
      ip link set v$v up
      ip link set w$v up
    done";

/// What the table has, whatever the order of what Linux takes for equal.
type Table = BTreeMap<Prefix, Vec<KernelRoute>>;

struct Followed {
    rib: Rib,
    events: mpsc::Receiver<Event>,
    /// What was told, for whoever has to find out why it is not what is.
    told: Vec<Event>,
}

impl Followed {
    async fn start() -> Self {
        Self::follow(Subscription::open(Follow::Routes, Arc::default()).await.unwrap())
    }

    fn follow(subscription: Subscription) -> Self {
        let (sender, events) = mpsc::channel(4096);
        tokio::spawn(subscription.run(sender));
        Self { rib: Rib::new(BTreeMap::new()), events, told: Vec::new() }
    }

    /// Takes in the lists.
    async fn first(&mut self) {
        loop {
            let event = timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap();
            let is_last = matches!(event, Event::RoutesEnd(Family::Inet6));
            self.rib.apply(event, &mut Dirty::default());
            if is_last {
                return;
            }
        }
    }

    fn table(&self) -> Table {
        let mirror = self.rib.mirror();
        let routes = |prefix: Prefix| {
            let mut routes: Vec<_> = mirror.routes(prefix).map(|it| (**it).clone()).collect();
            if !prefix.is_ipv4() {
                // IPv6 has no order among routes of one metric that it does not join.
                routes.sort_by_key(|it| (it.metric, format!("{it:?}")));
            }
            routes
        };
        mirror.prefixes().map(|prefix| (prefix, routes(prefix))).collect()
    }

    fn told_of(&self, prefix: Prefix) -> String {
        let mut text = String::new();
        for event in &self.told {
            let is_of_it = match event {
                Event::Route { prefix: of, .. } | Event::RouteGone { prefix: of, .. } => {
                    *of == prefix
                }
                Event::Routes(routes) => {
                    let of_it = routes.iter().filter(|(of, _)| *of == prefix);
                    for route in of_it {
                        let _ = writeln!(text, "listed: {route:?}");
                    }
                    false
                }
                Event::Neighbour(_) | Event::Neighbours(_) | Event::NeighbourGone { .. } => false,
                _ => true,
            };
            if is_of_it {
                let _ = writeln!(text, "{event:?}");
            }
        }
        text
    }

    fn rules(&self) -> Vec<Rule> {
        let mirror = self.rib.mirror();
        Family::ALL.into_iter().flat_map(|family| mirror.rules(family)).cloned().collect()
    }

    /// Takes in events until what was told is what is.
    async fn settle(&mut self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Ok(event) = timeout(Duration::from_millis(20), self.events.recv()).await {
                let event = event.unwrap();
                self.told.push(event.clone());
                self.rib.apply(event, &mut Dirty::default());
            }
            let mut truth = Self::start().await;
            truth.first().await;
            if (self.table(), self.rules()) == (truth.table(), truth.rules()) {
                self.told.clear();
                return;
            }
            if Instant::now() > deadline {
                assert_eq!(self.rules(), truth.rules(), "after {what}");
                let (told, is) = (self.table(), truth.table());
                for prefix in told.keys().chain(is.keys()) {
                    let events = self.told_of(*prefix);
                    assert_eq!(
                        told.get(prefix),
                        is.get(prefix),
                        "{prefix} after {what}\nWhat was told:\n{events}"
                    );
                }
            }
        }
    }
}

fn route(followed: &Followed, prefix: &str) -> Vec<KernelRoute> {
    followed.table().get(&prefix.parse().unwrap()).cloned().unwrap_or_default()
}

#[test]
fn routes_objects_and_rules_are_listed_and_followed() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh(LINKS);
    namespace.sh("ip route add 198.19.0.0/16 via 198.18.0.2 proto static metric 7
        ip route add 198.19.1.0/24 via inet6 2001:db8:1::2 dev v1
        ip nexthop add id 5 via 198.18.1.2 dev v1
        ip route add 198.19.2.0/24 nhid 5 proto bird
        ip route add blackhole 198.19.3.0/24
        ip rule add from 198.18.7.0/24 lookup 99 priority 50");
    namespace.run(|| async {
        let mut followed = Followed::start().await;
        followed.first().await;
        let static_route = &route(&followed, "198.19.0.0/16")[0];
        assert_eq!((static_route.metric, static_route.protocol), (7, 4));
        let Next::Members(members) = &route(&followed, "198.19.1.0/24")[0].next else {
            panic!("no members")
        };
        assert_eq!(members[0].hop.via, "2001:db8:1::2".parse().ok());
        assert_eq!(route(&followed, "198.19.2.0/24")[0].next, Next::Object(5));
        assert!(route(&followed, "198.19.3.0/24")[0].skip.is_some());
        // Connected routes are Linux's own.
        assert_eq!(route(&followed, "198.18.0.0/24")[0].protocol, 2);
        assert_eq!(route(&followed, "2001:db8::/64")[0].protocol, 2);
        assert_eq!(followed.rules().len(), 1);
        assert!(followed.rules()[0].text.contains("198.18.7.0/24"), "{:?}", followed.rules());

        namespace.sh("ip rule del priority 50
            ip route del 198.19.0.0/16
            ip nexthop del id 5");
        followed.settle("a few changes").await;
        assert_eq!(followed.rules(), []);
        assert_eq!(route(&followed, "198.19.2.0/24"), [], "it goes with its object");
    });
}

#[test]
fn what_vanishes_with_a_link_vanishes_here() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh(LINKS);
    namespace.sh("ip route add 198.19.0.0/16 via 198.18.0.2
        ip route add 198.19.1.0/24 nexthop via 198.18.0.2 nexthop via 198.18.1.2
        ip -6 route add 2001:db8:ff::/48 nexthop via 2001:db8:0::2 nexthop via 2001:db8:1::2
        ip nexthop add id 5 via 198.18.0.2 dev v0
        ip nexthop add id 6 via 198.18.1.2 dev v1
        ip nexthop add id 7 group 5/6
        ip route add 198.19.2.0/24 nhid 7
        ip route add 198.19.3.0/24 via 198.18.1.2 src 198.18.1.1");
    namespace.run(|| async {
        let mut followed = Followed::start().await;
        followed.first().await;
        for change in [
            "ip link set w0 down", // carrier
            "ip link set v0 down",
            "ip link set v0 up",
            "ip link set w0 up",
            "ip addr del 198.18.1.1/24 dev v1",
            "ip link del v1",
        ] {
            namespace.sh(change);
            followed.settle(change).await;
        }
        assert_eq!(route(&followed, "198.19.0.0/16"), []);
    });
}

#[test]
fn an_overflow_loses_no_route_and_leaves_none_behind() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh(LINKS);
    namespace.run(|| async {
        let subscription =
            Subscription::with_receive_buffer(4096, Follow::Routes, Arc::default()).await;
        let mut followed = Followed::follow(subscription.unwrap());
        followed.first().await;
        let mut batch = String::new();
        for number in 0..2000 {
            let (high, low) = (number / 250, number % 250);
            let _ = writeln!(batch, "route add 198.19.{high}.{low} via 198.18.0.2");
        }
        for number in 0..500 {
            let _ = writeln!(batch, "route del 198.19.0.{number}");
        }
        namespace.sh(&format!("ip -force -batch - <<END 2>/dev/null || true\n{batch}END"));
        followed.settle("an overflow").await;
        assert!(followed.table().len() >= 1750, "{}", followed.table().len());
    });
}

/// One change, as a line for `ip -batch`; many of them are refused, as they should be.
fn any_change() -> impl Strategy<Value = String> {
    let prefix4 = (0..4u8).prop_map(|number| format!("198.19.{}.0/{}", number * 16, 20 + number));
    let prefix6 = (0..4u8).prop_map(|number| format!("2001:db8:{number}00::/{}", 40 + number));
    let metric = prop_oneof![Just(""), Just(" metric 10"), Just(" metric 20")];
    let verb = prop_oneof![
        4 => Just("add"),
        3 => Just("replace"),
        2 => Just("append"),
        1 => Just("prepend"),
        1 => Just("change"),
        4 => Just("del"),
    ];
    let hop4 =
        (0..2u8, 2..4u8).prop_map(|(link, host)| format!("via 198.18.{link}.{host} dev v{link}"));
    let hop6 = (0..2u8, 2..4u8)
        .prop_map(|(link, host)| format!("via 2001:db8:{link}::{host} dev v{link}"));
    let next4 = prop_oneof![
        4 => hop4.clone().boxed(),
        2 => (hop4.clone(), hop4, 1..4u8)
            .prop_map(|(a, b, weight)| format!("nexthop {a} weight {weight} nexthop {b}"))
            .boxed(),
        2 => (1..6u8).prop_map(|id| format!("nhid {id}")).boxed(),
        1 => Just("via inet6 2001:db8:1::2 dev v1".to_owned()).boxed(),
        1 => Just("dev v1".to_owned()).boxed(),
        1 => Just("via 198.18.1.2 mtu 1300".to_owned()).boxed(),
        1 => Just(String::new()).boxed(),
    ];
    // What Linux does not join has metrics of its own: lists leave out what stands between the
    // parts of one that it has joined (`fib6_dump_node()` goes on behind the last of them).
    let next6 = prop_oneof![
        4 => (hop6.clone(), metric.clone()).prop_map(|(hop, metric)| hop + metric).boxed(),
        2 => (hop6.clone(), hop6, 1..4u8, metric.clone())
            .prop_map(|(a, b, weight, metric)| {
                format!("nexthop {a} weight {weight} nexthop {b}{metric}")
            })
            .boxed(),
        1 => Just("dev v0 metric 5".to_owned()).boxed(),
        // Of several joined routes Linux shows the time of one alone.
        1 => Just("dev v1 expires 300 metric 6".to_owned()).boxed(),
        1 => Just(String::new()).boxed(),
    ];
    let kind = prop_oneof![8 => Just(""), 1 => Just("blackhole "), 1 => Just("unreachable ")];
    let tos = prop_oneof![12 => Just(""), 1 => Just(" tos 4")];
    let route4 = (verb.clone(), kind.clone(), prefix4, next4, metric, tos).prop_map(
        |(verb, kind, prefix, next, metric, tos)| {
            let next = if kind.is_empty() { next } else { String::new() };
            format!("route {verb} {kind}{prefix} {next}{metric}{tos}")
        },
    );
    let route6 = (verb, kind, prefix6, next6).prop_map(|(verb, kind, prefix, next)| {
        let next = if kind.is_empty() { next } else { "metric 7".to_owned() };
        format!("-6 route {verb} {kind}{prefix} {next}")
    });
    let object = (1..5u8, 0..2u8, 2..4u8, any::<bool>()).prop_map(|(id, link, host, new)| {
        let verb = if new { "replace" } else { "del" };
        let way =
            if new { format!(" via 198.18.{link}.{host} dev v{link}") } else { String::new() };
        format!("nexthop {verb} id {id}{way}")
    });
    let group = prop_oneof![
        Just("nexthop replace id 5 group 1,2/2,3".to_owned()),
        Just("nexthop replace id 5 group 1/4".to_owned()),
        Just("nexthop del id 5".to_owned()),
    ];
    let link = (0..2u8, prop_oneof![Just("down"), Just("up"), Just("up")])
        .prop_map(|(link, state)| format!("link set v{link} {state}"));
    let address = (any::<bool>(), 0..2u8).prop_map(|(add, link)| {
        let verb = if add { "add" } else { "del" };
        format!("addr {verb} 198.18.{link}.9/24 dev v{link}")
    });
    let rule = any::<bool>().prop_map(|add| {
        let verb = if add { "add" } else { "del" };
        format!("rule {verb} from 198.18.7.0/24 lookup 99 priority 50")
    });
    prop_oneof![
        12 => route4.boxed(),
        10 => route6.boxed(),
        3 => object.boxed(),
        2 => group.boxed(),
        1 => link.boxed(),
        1 => address.boxed(),
        1 => rule.boxed(),
    ]
}

/// Rounds of random changes, each so many, of this seed.
fn follow_random_changes(seed: u8, rounds: usize, changes: usize) {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh(LINKS);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let round = prop::collection::vec(any_change(), changes);
    let rounds: Vec<Vec<String>> =
        (0..rounds).map(|_| round.new_tree(&mut runner).unwrap().current()).collect();
    namespace.run(|| async {
        let mut followed = Followed::start().await;
        followed.first().await;
        for (number, changes) in rounds.iter().enumerate() {
            // What is refused, as much should be, is no error of ours.
            let command = |line: &String| format!("ip {line} 2>/dev/null || true\n");
            namespace.sh(&changes.iter().map(command).collect::<String>());
            let changes = changes.join("\n");
            followed.settle(&format!("round {number} of seed {seed}:\n{changes}")).await;
        }
    });
}

/// How many seeds beside the one that always is: for those who have changed what this tests.
const SEEDS: &str = "FORWARDER_ROUTE_SEEDS";

#[test]
fn random_changes_are_followed() {
    follow_random_changes(7, 6, 60);
    let more = std::env::var(SEEDS).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    for seed in 100..100u8.saturating_add(more) {
        follow_random_changes(seed, 8, 40);
    }
}
