//! Questions and probes.

use std::net::IpAddr;

use super::{Mirror, State};
use crate::netlink::{Requests, event::NeighbourState, namespace::Namespace};

#[test]
fn a_probe_resolves_a_neighbour_or_tells_that_it_fails() {
    let Some(namespace) = Namespace::new() else { return };
    let Some(other) = Namespace::new() else { return };
    namespace.sh(&format!(
        "ip link add va type veth peer name vb netns {}
         ip addr add 198.18.0.1/24 dev va
         ip addr add 2001:db8::1/64 dev va nodad
         ip link set va up
         echo 500 > /proc/sys/net/ipv4/neigh/va/retrans_time_ms",
        other.path()
    ));
    other.sh("ip addr add 198.18.0.2/24 dev vb
         ip addr add 2001:db8::2/64 dev vb nodad
         ip link set vb up");
    namespace.run(|| async {
        let mut mirror = Mirror::start().await;
        mirror.until("carrier", |state| state.link("va").is_some_and(|a| a.carrier)).await;
        let a = mirror.state.link("va").unwrap().ifindex;
        let requests = Requests::open().unwrap();

        for address in ["198.18.0.2", "2001:db8::2"] {
            requests.probe(a, address.parse().unwrap()).await.unwrap();
            let reachable =
                |state: &State| state.neighbour(address) == Some(NeighbourState::Reachable);
            mirror.until("reachable", reachable).await;
        }
        requests.probe(a, "198.18.0.77".parse().unwrap()).await.unwrap();
        // Of which the kernel sends no notification.
        let mut lists = Mirror::start().await;
        let incomplete =
            |state: &State| state.neighbour("198.18.0.77") == Some(NeighbourState::Incomplete);
        lists.until("asked", incomplete).await;
        mirror
            .until("failed", |state| state.neighbour("198.18.0.77") == Some(NeighbourState::Failed))
            .await;
        other.sh("ip addr add 198.18.0.77/24 dev vb");
        requests.probe(a, "198.18.0.77".parse().unwrap()).await.unwrap();
        mirror
            .until("answered", |state| {
                state.neighbour("198.18.0.77") == Some(NeighbourState::Reachable)
            })
            .await;

        // A stale entry is confirmed, which takes the kernel DELAY and PROBE.
        namespace.sh("echo 0 > /proc/sys/net/ipv4/neigh/va/delay_first_probe_time");
        namespace.sh("ip neigh change 198.18.0.2 dev va nud stale");
        mirror
            .until("stale", |state| state.neighbour("198.18.0.2") == Some(NeighbourState::Stale))
            .await;
        requests.probe(a, "198.18.0.2".parse().unwrap()).await.unwrap();
        mirror
            .until("confirmed", |state| {
                state.neighbour("198.18.0.2") == Some(NeighbourState::Reachable)
            })
            .await;

        namespace.sh("ip neigh del 198.18.0.2 dev va");
        mirror.until("gone", |state| state.neighbour("198.18.0.2").is_none()).await;

        let error = requests.probe(9999, "198.18.0.2".parse().unwrap()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kernel does not resolve 198.18.0.2 on interface 9999: No such device (os error 19)"
        );
    });
}

#[test]
fn a_probe_changes_nothing_about_an_entry() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh("ip link add va type veth peer name vb
         ip link set va up
         ip link set vb up
         ip addr add 198.18.0.1/24 dev va
         ip neigh add 198.18.0.2 lladdr 02:00:00:00:00:02 dev va nud permanent
         ip neigh add 198.18.0.3 lladdr 02:00:00:00:00:03 dev va nud noarp
         ip neigh add 198.18.0.4 dev va managed
         ip neigh add 198.18.0.5 lladdr 02:00:00:00:00:05 dev va nud reachable extern_learn");
    let show = || namespace.sh("ip neigh show dev va nud all | grep ^198 | sort");
    let entries = |text: &str| {
        text.lines()
            .map(|line| line.replace("INCOMPLETE", "").replace("PROBE", "").replace("FAILED", ""))
            .collect::<Vec<_>>()
    };
    let before = show();
    assert!(
        before.contains("PERMANENT")
            && before.contains("managed")
            && before.contains("extern_learn")
    );
    namespace.run(|| async {
        let requests = Requests::open().unwrap();
        let links = requests.links().await.unwrap();
        let a = links.iter().find(|details| details.link.name == "va").unwrap().link.ifindex;
        for host in 2..=5 {
            requests.probe(a, IpAddr::from([198, 18, 0, host])).await.unwrap();
        }
    });
    assert_eq!(entries(&show()), entries(&before));
}

#[test]
fn routes_are_told_by_their_interfaces() {
    let Some(namespace) = Namespace::new() else { return };
    namespace.sh("ip link add va index 101 type veth peer name vb index 102
         ip link set va up
         ip link set vb up
         ip addr add 198.18.1.1/24 dev va
         ip addr add 2001:db8::1/64 dev vb nodad");
    namespace.run(|| async {
        let requests = Requests::open().unwrap();
        let towards = async |address: &str| {
            requests.interface_towards(address.parse().unwrap()).await.unwrap()
        };
        assert_eq!(towards("198.18.1.9").await, Some(101));
        assert_eq!(towards("2001:db8::9").await, Some(102));
        assert_eq!(towards("198.18.2.9").await, None);
        assert_eq!(towards("2001:db8:1::9").await, None);
        assert_eq!(requests.default_route_interfaces().await.unwrap(), [0_u32; 0]);

        namespace.sh(
            "ip route add default nexthop via 198.18.1.9 dev va nexthop via 198.18.1.8 dev va
             ip -6 route add default via 2001:db8::9 dev vb
             ip route add blackhole default metric 9",
        );
        assert_eq!(requests.default_route_interfaces().await.unwrap(), [101, 102]);
        assert_eq!(towards("198.18.2.9").await, Some(101));
    });
}

#[test]
fn a_request_given_up_halfway_does_not_spoil_the_next() {
    let Some(namespace) = Namespace::new() else { return };
    // So many that the kernel cannot answer in one datagram.
    namespace.sh(
        "for n in $(seq 100); do echo link add v$n type veth peer name w$n; done | ip -batch -",
    );
    namespace.run(|| async {
        let requests = Requests::open().unwrap();
        {
            let first = std::pin::pin!(requests.links());
            // Polled once: asked, and not waited for.
            let poll = futures_util::poll!(first);
            assert!(poll.is_pending(), "answered at once: the test shows nothing");
        }
        assert_eq!(requests.links().await.unwrap().len(), 201);
    });
}
