//! Lists and changes.

use std::{fmt::Write, net::IpAddr, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{Mirror, PATIENCE, State};
use crate::netlink::{
    Follow, Subscription,
    event::{Address, Event, NeighbourState},
    namespace::Namespace,
};

#[test]
fn the_lists_come_first_and_in_order() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh("ip link add va type veth peer name vb
         ip addr add 198.18.0.1/24 dev va
         ip addr add 2001:db8::1/64 dev va nodad
         ip link set va up
         ip link set vb up
         ip neigh add 198.18.0.9 lladdr 02:00:00:00:00:09 dev va
         ip neigh add proxy 198.18.0.8 dev va");
    namespace.run(|| async {
        let mut mirror = Mirror::start().await;
        let Event::Links(links) = mirror.next().await else { panic!("no links") };
        let Event::Addresses(addresses) = mirror.next().await else { panic!("no addresses") };
        let Event::Locals(locals) = mirror.next().await else { panic!("no locals") };
        let Event::Neighbours(neighbours) = mirror.next().await else { panic!("no neighbours") };

        let a = links.iter().find(|link| link.name == "va").unwrap();
        assert_eq!(a.kind.as_deref(), Some("veth"));
        assert!(a.up && a.carrier && a.mac.is_some() && a.mtu == 1500);
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!((lo.mac, lo.kind.as_deref()), (None, None));

        for address in ["127.0.0.1/8", "198.18.0.1/24", "2001:db8::1/64"] {
            let address = address.parse().unwrap();
            assert!(addresses.iter().any(|known| known.address == address), "{addresses:?}");
        }
        for prefix in
            ["127.0.0.0/8", "198.18.0.1/32", "198.18.0.255/32", "2001:db8::1/128", "ff00::/8"]
        {
            assert!(locals.contains(&prefix.parse().unwrap()), "{prefix} in {locals:?}");
        }
        assert!(!locals.contains(&"198.18.0.0/24".parse().unwrap()));
        let address: IpAddr = "198.18.0.9".parse().unwrap();
        let known = neighbours.iter().find(|neighbour| neighbour.address == address).unwrap();
        assert_eq!(known.state, NeighbourState::Permanent);
        assert_eq!((known.ifindex, known.mac), (a.ifindex, Some([2, 0, 0, 0, 0, 9])));
        let proxied: IpAddr = "198.18.0.8".parse().unwrap();
        assert!(neighbours.iter().all(|neighbour| neighbour.address != proxied));
    });
}

#[test]
fn a_links_life_is_followed() {
    let Some(namespace) = Namespace::new() else { return };
    let Some(other) = Namespace::new() else { return };
    namespace.run(|| async {
        let mut mirror = Mirror::start().await;
        let sh = |script: &str| namespace.sh(script);

        sh("ip link add va index 1001 type veth peer name vb");
        mirror.until("a new link", |state| state.link("va").is_some_and(|a| !a.up)).await;
        assert_eq!(mirror.state.link("va").unwrap().ifindex, 1001);
        sh("ip link set va up");
        mirror
            .until("up without carrier", |state| {
                state.link("va").is_some_and(|a| a.up && !a.carrier)
            })
            .await;
        sh("ip link set vb up");
        mirror.until("carrier", |state| state.link("va").is_some_and(|a| a.up && a.carrier)).await;
        sh("ip link set va mtu 1400");
        mirror.until("an MTU", |state| state.link("va").is_some_and(|a| a.mtu == 1400)).await;
        sh("ip link set va address 02:00:00:00:00:0a");
        let mac = Some([2, 0, 0, 0, 0, 0xa]);
        mirror.until("a MAC address", |state| state.link("va").is_some_and(|a| a.mac == mac)).await;

        sh("ip link add bridge type bridge\nip link set va master bridge");
        let enslaved = |state: &State| {
            let bridge = state.link("bridge").map(|bridge| bridge.ifindex);
            bridge.is_some() && state.link("va").is_some_and(|a| a.controller == bridge)
        };
        mirror.until("a controller", enslaved).await;
        sh("ip link set va nomaster");
        mirror
            .until("no controller", |state| {
                state.link("va").is_some_and(|a| a.controller.is_none())
            })
            .await;

        sh("ip link set va down\nip link set va name renamed");
        mirror
            .until("a name", |state| state.link("va").is_none() && state.link("renamed").is_some())
            .await;
        assert_eq!(mirror.state.link("renamed").unwrap().ifindex, 1001);
        sh(&format!("ip link set vb netns {}", other.path()));
        mirror.until("moved away", |state| state.link("vb").is_none()).await;
        sh("ip link del renamed");
        mirror.until("removed", |state| state.link("renamed").is_none()).await;
    });
}

#[test]
fn own_addresses_come_and_go() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh("ip link add va type veth peer name vb\nip link set va up\nip link set vb up");
    namespace.run(|| async {
        let mut mirror = Mirror::start().await;
        let sh = |script: &str| namespace.sh(script);

        sh("ip addr add 198.18.0.1/24 dev va\nip addr add 2001:db8::1/64 dev va nodad");
        let both = |state: &State| state.has_local("198.18.0.1") && state.has_local("2001:db8::1");
        mirror.until("two addresses", both).await;
        mirror.until("a broadcast address", |state| state.has_local("198.18.0.255")).await;
        let is_v4 = |known: &Address| known.address == "198.18.0.1/24".parse().unwrap();
        mirror.until("an address", |state| state.addresses.iter().any(is_v4)).await;

        // The same address on two interfaces: it is ours until both are gone.
        sh("ip addr add 198.18.0.1/24 dev vb\nip addr del 198.18.0.1/24 dev va\nip addr del 2001:db8::1/64 dev va");
        mirror.until("IPv6 gone", |state| !state.has_local("2001:db8::1")).await;
        assert!(mirror.state.has_local("198.18.0.1"));
        sh("ip addr del 198.18.0.1/24 dev vb");
        mirror.until("IPv4 gone", |state| !state.has_local("198.18.0.1")).await;
        mirror.until("no address", |state| !state.addresses.iter().any(is_v4)).await;
    });
}

#[test]
fn a_local_route_that_vanishes_in_silence_is_missed() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh(
        "ip link add va type veth peer name vb\nip link set va up\nip addr add 198.18.0.1/24 dev va",
    );
    namespace.run(|| async {
        let mut mirror = Mirror::start().await;
        mirror.until("a broadcast address", |state| state.has_local("198.18.0.255")).await;
        // The kernel keeps the address, drops the broadcast route, and says nothing.
        namespace.sh("ip link set va down");
        mirror.until("no broadcast address", |state| !state.has_local("198.18.0.255")).await;
        assert!(mirror.state.has_local("198.18.0.1"));

        namespace.sh("ip route add table local local 198.18.5.0/24 dev lo");
        mirror.until("a route", |state| state.has_local("198.18.5.0/24")).await;
        namespace.sh("ip route replace table local blackhole 198.18.5.0/24");
        mirror.until("it is replaced", |state| !state.has_local("198.18.5.0/24")).await;
    });
}

#[test]
fn an_overflow_brings_the_lists_again() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh("ip link add va type veth peer name vb
         ip link set va up
         ip link set vb up
         ip addr add 2001:db8::1/64 dev va nodad");
    namespace.run(|| async {
        let subscription = Subscription::with_receive_buffer(4096, Follow::NoRoutes, Arc::default()).await.unwrap();
        // Nobody takes the events while far more happens than the socket holds.
        let mut mirror = Mirror::follow(subscription, 1);
        let mut batch = String::new();
        for host in 0..1000 {
            let (high, low) = (host / 250, host % 250 + 1);
            let _ = writeln!(batch, "addr add 198.18.{high}.{low}/16 dev vb\nneigh add 198.19.{high}.{low} lladdr 02:00:00:00:00:01 dev va");
        }
        namespace.sh(&format!("ip -batch - <<END\n{batch}END"));
        namespace.sh("ip link set va mtu 1300\nip addr del 2001:db8::1/64 dev va\nip neigh flush dev va nud permanent\nip neigh add 198.19.0.1 lladdr 02:00:00:00:00:02 dev va");

        let mut lists = 0;
        let is_true = |state: &State| {
            state.link("va").is_some_and(|a| a.mtu == 1300)
                && !state.has_local("2001:db8::1")
                && state.has_local("198.18.3.250")
                && state.addresses.len() >= 1000
                && state.neighbour("198.19.0.1").is_some()
                && state.neighbour("198.19.3.250").is_none()
        };
        while lists < 2 || !is_true(&mirror.state) {
            let event = mirror.next().await;
            lists += u32::from(matches!(event, Event::Links(_)));
            mirror.state.apply(event);
        }

        // IPv6 is still busy with itself: what is true now may not have been told yet.
        let deadline = Instant::now() + PATIENCE;
        while mirror.state.clone().sorted() != truth().await {
            assert!(Instant::now() < deadline, "what was told is not what is");
            if let Ok(event) = timeout(Duration::from_millis(100), mirror.next()).await {
                mirror.state.apply(event);
            }
        }
    });
}

async fn truth() -> State {
    let mut mirror = Mirror::start().await;
    for _ in 0..4 {
        let list = mirror.next().await;
        mirror.state.apply(list);
    }
    mirror.state.sorted()
}

#[test]
fn following_ends_with_its_listener() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.run(|| async {
        let (sender, mut events) = mpsc::channel(4);
        let running = tokio::spawn(
            Subscription::open(Follow::NoRoutes, Arc::default()).await.unwrap().run(sender),
        );
        assert!(matches!(events.recv().await, Some(Event::Links(_))));
        drop(events);
        timeout(PATIENCE, running).await.expect("an end").unwrap();
    });
}

#[test]
fn nothing_falls_between_the_lists_and_the_changes() {
    const ADDRESSES: usize = 1000;
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh("ip link add va index 101 type veth peer name vb");
    let mut batch = String::new();
    for host in 0..ADDRESSES {
        let _ = writeln!(batch, "addr add 198.18.{}.{}/32 dev va", host / 250, host % 250 + 1);
    }
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| namespace.sh(&format!("ip -batch - <<END\n{batch}END")));
        namespace.run(|| async {
            let mut mirrors = Vec::new();
            while !adding.is_finished() {
                mirrors.push(Mirror::start().await);
            }
            for mirror in &mut mirrors {
                // And those of lo.
                let complete = |state: &State| state.addresses.len() == ADDRESSES + 2;
                mirror.until("all addresses", complete).await;
            }
        });
    });
}
