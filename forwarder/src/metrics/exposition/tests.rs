use forwarder_common::loss::Loss;
use proptest::prelude::*;

use super::{
    super::testing::{Labels, Scraped, parse, promtool_accepts, small, snapshots, status},
    *,
};
use crate::{
    route::NextHop,
    snapshot::{Dequeued, Enqueued, RouteCounters},
    tracepoints::{Missing, Tracepoint},
};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn scrape(snapshot: Snapshot, steering: &str) -> Scraped {
    parse(&text(snapshot, status(&[("eth0", 2), ("eth1", 3)], steering)).unwrap())
}

/// Sum over the samples that have these labels.
fn sum(scraped: &Scraped, family: &str, pairs: &[(&str, &str)]) -> f64 {
    let wanted = labels(pairs);
    let samples = scraped.get(family).into_iter().flatten();
    let samples =
        samples.filter(|(labels, _)| wanted.iter().all(|pair| labels.get(pair.0) == Some(pair.1)));
    // The values are integers below 2^53, so that the order of the sum does not matter.
    samples.map(|(_, value)| value).sum()
}

#[test]
fn one_frame_is_found_where_it_belongs() {
    let scraped = scrape(small(), "cpus=1");
    let packets = |family: &str, pairs: &[(&str, &str)]| {
        scraped[&format!("forwarder_{family}_packets_total")].get(&labels(pairs)).copied()
    };
    let eth0 = |cpu| [("interface", "eth0"), ("cpu", cpu)];
    assert_eq!(packets("rx", &eth0("0")), Some(10.0));
    assert_eq!(packets("rx", &eth0("1")), Some(0.0));
    assert_eq!(packets("steered", &eth0("0")), Some(3.0));
    assert_eq!(packets("worker_rx", &eth0("1")), Some(3.0));
    let stage = |cpu, stage| [("interface", "eth0"), ("cpu", cpu), ("stage", stage)];
    assert_eq!(packets("redirected", &stage("0", "ingress")), Some(4.0));
    assert_eq!(packets("redirected", &stage("1", "worker")), Some(2.0));
    let reason = |cpu, stage, reason| {
        [("interface", "eth0"), ("cpu", cpu), ("stage", stage), ("reason", reason)]
    };
    assert_eq!(packets("passed", &reason("0", "ingress", "ttl_expired")), Some(1.0));
    assert_eq!(packets("passed", &reason("1", "worker", "no_route")), Some(1.0));
    assert_eq!(
        scraped["forwarder_rx_bytes_total"].get(&labels(&eth0("0"))),
        Some(&1000.0),
        "bytes are not packets"
    );
}

#[test]
fn a_reason_that_happened_on_one_cpu_is_there_for_all_of_the_interface() {
    let scraped = scrape(small(), "off");
    let cpus = |interface: &str, stage: &str, reason: &str| {
        let wanted = labels(&[("interface", interface), ("stage", stage), ("reason", reason)]);
        let samples = scraped["forwarder_passed_packets_total"].keys();
        samples.filter(|labels| wanted.iter().all(|(k, v)| labels.get(k) == Some(v))).count()
    };
    assert_eq!(cpus("eth0", "ingress", "ttl_expired"), 2);
    assert_eq!(cpus("eth0", "worker", "ttl_expired"), 0);
    assert_eq!(cpus("eth1", "ingress", "ttl_expired"), 0);
    for reason in REASONS_ALWAYS {
        assert_eq!(cpus("eth1", "ingress", reason.label()), 2, "a sum must exist from the start");
    }
}

#[test]
fn workers_are_there_when_there_is_steering_or_was() {
    let mut idle = small();
    for interface in &mut idle.interfaces {
        interface.worker = vec![CpuCounters::default(); 2];
    }
    let workers = |snapshot: Snapshot, steering| {
        scrape(snapshot, steering).contains_key("forwarder_worker_rx_packets_total")
    };
    assert!(!workers(idle.clone(), "off"));
    assert!(workers(idle, "cpus=0-1"));
    assert!(workers(small(), "off"));
}

#[test]
fn what_belongs_to_no_interface_is_there_when_there_is_some() {
    let mut snapshot = small();
    let rx = "forwarder_rx_packets_total";
    let unknown = labels(&[("interface", "unknown"), ("cpu", "0")]);
    assert_eq!(scrape(snapshot.clone(), "off")[rx].get(&unknown), None);
    snapshot.interfaces[0].ingress[0].0[0].packets = 5;
    assert_eq!(scrape(snapshot, "off")[rx].get(&unknown), Some(&5.0));
}

#[test]
fn the_daemon_tells_what_it_is() {
    let scraped = scrape(small(), "off");
    let value = |family: &str, pairs: &[(&str, &str)]| scraped[family].get(&labels(pairs)).copied();
    let abi = ABI_VERSION.to_string();
    let build = [("version", "0.1.0"), ("kernel", "6.18.0"), ("abi", &abi)];
    assert_eq!(value("forwarder_build_info", &build), Some(1.0));
    let eth1 = [("interface", "eth1"), ("ifindex", "3"), ("mode", "native")];
    assert_eq!(value("forwarder_interface_info", &eth1), Some(1.0));
    assert_eq!(value("forwarder_routes", &[("family", "ipv4")]), Some(3.0));
    assert_eq!(value("forwarder_routes", &[("family", "ipv6")]), Some(2.0));
    assert_eq!(value("forwarder_routes_max", &[("family", "ipv6")]), Some(262_144.0));
    assert_eq!(value("forwarder_routes_waiting", &[]), Some(1.0));
    assert_eq!(value("forwarder_uptime_seconds", &[]), Some(61.5));
    assert!(!scraped.contains_key("forwarder_next_hop_packets_total"));
}

fn next_hop(via: Option<&str>, dev: &str) -> NextHop {
    NextHop { via: via.map(|via| via.parse().unwrap()), dev: Some(dev.to_owned()), weight: 1 }
}

#[test]
fn a_set_of_next_hops_is_one_sample() {
    let mut snapshot = small();
    let (one, other) = (next_hop(Some("198.18.1.2"), "eth1"), next_hop(Some("198.18.2.2"), "eth2"));
    let heavy = NextHop { weight: 2, ..other.clone() };
    let cpus = vec![Count { packets: 3, bytes: 300 }];
    snapshot.routes = [vec![one.clone(), other], vec![one.clone(), heavy], vec![one]]
        .map(|next_hops| RouteCounters { next_hops, cpus: cpus.clone() })
        .to_vec();
    let scraped = scrape(snapshot, "off");
    let packets = |via, interface| {
        let labels = labels(&[("via", via), ("interface", interface)]);
        scraped["forwarder_next_hop_packets_total"].get(&labels).copied()
    };
    assert_eq!(packets("198.18.1.2,198.18.2.2", "eth1,eth2"), Some(6.0));
    assert_eq!(packets("198.18.1.2", "eth1"), Some(3.0));
}

#[test]
fn next_hops_are_summed_over_cpus() {
    let mut snapshot = small();
    let count = |packets| Count { packets, bytes: packets * 100 };
    let route = |via: Option<&str>, cpus: &[u64]| RouteCounters {
        next_hops: vec![next_hop(via, "eth1")],
        cpus: cpus.iter().map(|packets| count(*packets)).collect(),
    };
    snapshot.routes = vec![
        route(Some("198.18.1.2"), &[1, 2]),
        route(None, &[4]),
        route(Some("2001:db8::1"), &[]),
    ];
    let scraped = scrape(snapshot, "off");
    let bytes = |via| {
        let labels = labels(&[("via", via), ("interface", "eth1")]);
        scraped["forwarder_next_hop_bytes_total"].get(&labels).copied()
    };
    assert_eq!(bytes("198.18.1.2"), Some(300.0));
    assert_eq!(bytes("connected"), Some(400.0));
    assert_eq!(bytes("2001:db8::1"), Some(0.0));
}

/// One of each kind of loss.
fn lossy() -> Snapshot {
    let mut snapshot = small();
    let eth0 = &mut snapshot.interfaces[1].after;
    eth0[0].lost_to_port.0[Loss::TooBig.slot()] = 3;
    eth0[0].lost_to_cpu.0[Loss::NoHeadroom.slot()] = 2;
    let eth1 = &mut snapshot.interfaces[2].after;
    (eth1[0].sent, eth1[1].sent) = (1, 2);
    eth1[1].unsent.0[Loss::RingFull.slot()] = 5;
    snapshot.enqueued = vec![
        Enqueued { cpu: 0, worker: 1, frames: 3, dropped: 1 },
        Enqueued { cpu: 0, worker: 0, frames: 4, dropped: 0 },
    ];
    snapshot.dequeued = vec![Dequeued { cpu: 1, frames: 3, lost: 1 }];
    snapshot
}

#[test]
fn losses_are_found_where_they_belong() {
    let scraped = scrape(lossy(), "cpus=1");
    let value = |family: &str, pairs: &[(&str, &str)]| {
        scraped[&format!("forwarder_{family}")].get(&labels(pairs)).copied()
    };
    let on = |interface, cpu| [("interface", interface), ("cpu", cpu)];
    let sent = "transmitted_packets_total";
    assert_eq!(value(sent, &on("eth1", "1")), Some(2.0));
    assert_eq!(value(sent, &on("eth0", "1")), Some(0.0), "a sum must exist from the start");
    let full = [("interface", "eth1"), ("cpu", "1"), ("reason", "ring_full")];
    assert_eq!(value("transmit_lost_packets_total", &full), Some(5.0));
    let lost = |target, reason| {
        [("interface", "eth0"), ("cpu", "0"), ("target", target), ("reason", reason)]
    };
    let family = "redirect_lost_packets_total";
    assert_eq!(value(family, &lost("port", "too_big")), Some(3.0));
    assert_eq!(value(family, &lost("cpu", "no_headroom")), Some(2.0));
    assert_eq!(
        scraped[&format!("forwarder_{family}")].len(),
        2,
        "what has not happened is not there"
    );
    assert_eq!(value("enqueued_packets_total", &[("cpu", "0")]), Some(7.0));
    assert_eq!(value("queue_lost_packets_total", &[("cpu", "1")]), Some(1.0));
    assert_eq!(value("dequeued_packets_total", &[("cpu", "1")]), Some(3.0));
    assert_eq!(value("worker_lost_packets_total", &[("cpu", "1")]), Some(1.0));
    // 3 steered; 2 not taken by a CPU, 7 given to queues.
    assert_eq!(value("unaccounted_packets", &[("equation", "B")]), Some(6.0));
    assert_eq!(value("unaccounted_packets", &[("equation", "A")]), Some(0.0));
}

#[test]
fn a_tracepoint_that_is_not_followed_is_told_and_its_equations_are_not() {
    let mut snapshot = lossy();
    let (tracepoint, why) = (Tracepoint::XdpDevmapXmit, "a test".to_owned());
    snapshot.missing = vec![Missing { tracepoint, why }];
    let scraped = scrape(snapshot, "off");
    let followed = |name| {
        scraped["forwarder_tracepoint_followed"].get(&labels(&[("tracepoint", name)])).copied()
    };
    assert_eq!(followed("xdp_devmap_xmit"), Some(0.0));
    assert_eq!(followed("xdp_redirect_err"), Some(1.0));
    let equations: Vec<_> = scraped["forwarder_unaccounted_packets"].keys().collect();
    assert_eq!(equations.len(), 5);
    assert!(!equations.contains(&&labels(&[("equation", "E")])));
}

#[test]
fn promtool_has_nothing_to_say() {
    let mut snapshot = lossy();
    let next_hop = NextHop { via: Some("198.18.1.2".parse().unwrap()), dev: None, weight: 1 };
    snapshot.routes = vec![RouteCounters { next_hops: vec![next_hop], cpus: vec![] }];
    let interfaces = [("eth0", 2), ("we\"ird\\", 3)];
    promtool_accepts(&text(snapshot, status(&interfaces, "cpus=0-1")).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sums_close_and_every_count_is_there(snapshot in snapshots()) {
        let scraped = scrape(snapshot.clone(), "off");
        let mut names: Vec<_> = snapshot.interfaces.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let same = || snapshot.interfaces.iter().filter(|interface| interface.name == name);
            for cpu in 0..6 {
                let cpu_label = cpu.to_string();
                let on = [("interface", name), ("cpu", cpu_label.as_str())];
                let ingress = [on[0], on[1], ("stage", "ingress")];
                let worker = [on[0], on[1], ("stage", "worker")];
                let counted = |stage, slot: fn(&CpuCounters) -> Count| -> Count {
                    same().map(|interface| slot(&interface.on_cpu(stage, cpu))).sum()
                };
                for (unit, value) in [
                    ("packets", (|count| count.packets) as fn(Count) -> u64),
                    ("bytes", |count| count.bytes),
                ] {
                    let scraped = |what: &str, labels: &[_]| {
                        sum(&scraped, &format!("forwarder_{what}_{unit}_total"), labels)
                    };
                    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
                    let counted = |stage, slot| value(counted(stage, slot)) as f64;
                    let close = |left: f64, right: f64| (left - right).abs() < 0.5;

                    let rx = scraped("rx", &on);
                    prop_assert!(close(rx, counted(Stage::Ingress, CpuCounters::rx)));
                    let out = scraped("redirected", &ingress)
                        + scraped("steered", &on)
                        + scraped("passed", &ingress);
                    prop_assert!(close(rx, out), "{rx} {out}");

                    let rx = scraped("worker_rx", &on);
                    prop_assert!(close(rx, counted(Stage::Worker, CpuCounters::rx)));
                    let out = scraped("redirected", &worker) + scraped("passed", &worker);
                    prop_assert!(close(rx, out), "{rx} {out}");

                    let local = [worker[0], worker[1], worker[2], ("reason", "local")];
                    let counted = counted(Stage::Worker, |cpu| cpu.passed(Reason::Local));
                    prop_assert!(close(scraped("passed", &local), counted));
                }
            }
        }
        let next_hops: u64 = snapshot.routes.iter().flat_map(|route| &route.cpus)
            .map(|count| count.packets).sum();
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let difference = sum(&scraped, "forwarder_next_hop_packets_total", &[]) - next_hops as f64;
        prop_assert!(difference.abs() < 0.5);
    }
}
