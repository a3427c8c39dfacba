use forwarder_common::verdict::{SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED};

use forwarder_common::loss::Loss;
use serde_json::json;

use super::{json::json as as_json, *};
use crate::{
    route::NextHop,
    snapshot::{After, Dequeued, Enqueued, RouteCounters},
    tracepoints::{Missing, Tracepoint},
};

mod rates;

const LOCAL: u32 = Reason::Local.slot();
const NO_ROUTE: u32 = Reason::NoRoute.slot();
const TTL: u32 = Reason::TtlExpired.slot();

fn counters(slots: &[(u32, u64)]) -> CpuCounters {
    let mut counters = CpuCounters::default();
    for &(slot, packets) in slots {
        counters.0[slot as usize] = Count { packets, bytes: packets * 64 };
    }
    counters
}

fn interface(
    name: &str,
    ifindex: u32,
    ingress: [CpuCounters; 3],
    worker: [CpuCounters; 3],
) -> InterfaceCounters {
    let (ingress, worker) = (ingress.to_vec(), worker.to_vec());
    let after = vec![After::default(); ingress.len()];
    let name = name.to_owned();
    InterfaceCounters { name, ifindex, generic: false, ingress, worker, after, nic: None }
}

fn nothing() -> [CpuCounters; 3] {
    std::array::from_fn(|_| CpuCounters::default())
}

/// CPU 2 is possible, but not there.
fn snapshot(interfaces: Vec<InterfaceCounters>) -> Snapshot {
    Snapshot { uptime_ms: 60_000, cpus_online: vec![0, 1], interfaces, ..Snapshot::default() }
}

fn busy() -> Snapshot {
    let on0 = [(SLOT_RX, 1_234_570), (SLOT_REDIRECTED, 1_234_567), (TTL, 1), (LOCAL, 2)];
    let on1 = [(SLOT_RX, 8), (SLOT_STEERED, 5), (LOCAL, 3)];
    let worker = [(SLOT_RX, 5), (SLOT_REDIRECTED, 4), (NO_ROUTE, 1)];
    let mut snapshot = snapshot(vec![
        interface("unknown", 0, nothing(), nothing()),
        interface(
            "eth0",
            2,
            [counters(&on0), counters(&on1), CpuCounters::default()],
            [counters(&worker), CpuCounters::default(), CpuCounters::default()],
        ),
        interface("enp3s0f1", 3, nothing(), nothing()),
    ]);
    snapshot.interfaces[2].after[0].sent = 1_234_571;
    snapshot.enqueued = vec![Enqueued { cpu: 1, worker: 0, frames: 5, dropped: 0 }];
    snapshot.dequeued = vec![Dequeued { cpu: 0, frames: 5, lost: 0 }];
    snapshot
}

#[test]
fn interfaces_are_summed_over_cpus() {
    assert_eq!(
        render(&busy(), false),
        "\
interface       rx  redirected  steered  passed
eth0       1234578     1234567        5       6
enp3s0f1         0           0        0       0
total      1234578     1234567        5       6

interface  passed  reason
eth0            5  local        destination is this host or a subnet's broadcast address
eth0            1  ttl_expired  TTL or hop limit has run out: Linux answers (traceroute)

steered here
interface  rx  redirected  passed
eth0        5           4       1
enp3s0f1    0           0       0
total       5           4       1

interface  passed  reason
eth0            1  no_route  no route here: add one with `forwarder route add`

egress       sent  unsent
enp3s0f1  1234571       0
"
    );
}

#[test]
fn per_cpu_there_is_a_row_for_each_that_has_seen_anything() {
    assert_eq!(
        render(&busy(), true),
        "\
interface  cpu       rx  redirected  steered  passed
eth0         0  1234570     1234567        0       3
eth0         1        8           0        5       3
enp3s0f1     -        0           0        0       0
total        -  1234578     1234567        5       6

interface  passed  reason
eth0            5  local        destination is this host or a subnet's broadcast address
eth0            1  ttl_expired  TTL or hop limit has run out: Linux answers (traceroute)

steered here
interface  cpu  rx  redirected  passed
eth0         0   5           4       1
enp3s0f1     -   0           0       0
total        -   5           4       1

interface  passed  reason
eth0            1  no_route  no route here: add one with `forwarder route add`

egress    cpu     sent  unsent
enp3s0f1    0  1234571       0
"
    );
}

#[test]
fn before_the_first_frame_there_is_a_table_of_zeros() {
    let idle = snapshot(vec![
        interface("unknown", 0, nothing(), nothing()),
        interface("eth0", 2, nothing(), nothing()),
    ]);
    assert_eq!(
        render(&idle, false),
        "\
interface  rx  redirected  steered  passed
eth0        0           0        0       0
total       0           0        0       0
"
    );
}

#[test]
fn what_belongs_to_no_interface_is_shown_when_there_is_some() {
    let passed = counters(&[(SLOT_RX, 7), (Reason::UnknownInterface.slot(), 7)]);
    let [_, one, two] = nothing();
    let lost = snapshot(vec![interface("unknown", 0, [passed, one, two], nothing())]);
    assert_eq!(
        render(&lost, false),
        "\
interface  rx  redirected  steered  passed
unknown     7           0        0       7
total       7           0        0       7

interface  passed  reason
unknown         7  unknown_interface  came in by an interface that the daemon has not described yet
"
    );
    assert_eq!(as_json(&lost)["interfaces"][0]["name"], "unknown");
}

#[test]
fn json_has_every_count_by_cpu() {
    let mut snapshot = busy();
    let via = Some("198.18.1.2".parse().unwrap());
    let next_hop = NextHop { via, dev: Some("eth1".to_owned()), weight: 1 };
    let count = Count { packets: 3, bytes: 192 };
    let cpus = vec![Count::default(), count];
    let other = NextHop { dev: Some("eth2".to_owned()), weight: 2, ..next_hop.clone() };
    snapshot.routes = vec![
        RouteCounters { next_hops: vec![next_hop.clone()], cpus },
        RouteCounters { next_hops: vec![next_hop, other], cpus: vec![] },
    ];
    let zero = json!({"packets": 0, "bytes": 0});
    let idle = json!({
        "ingress": {"rx": zero, "redirected": zero, "steered": zero, "passed": {}},
        "worker": {"rx": zero, "redirected": zero, "passed": {}},
        "after": {"lost_to_port": {}, "lost_to_cpu": {}, "sent": 0, "unsent": {}},
    });
    let idle_on = |cpu| json!({"cpu": cpu, "ingress": idle["ingress"], "worker": idle["worker"], "after": idle["after"]});
    let mut sending = idle_on(0);
    sending["after"]["sent"] = 1_234_571.into();
    assert_eq!(
        as_json(&snapshot),
        json!({
            "uptime_ms": 60_000,
            "cpus_online": [0, 1],
            "interfaces": [
                {"name": "eth0", "ifindex": 2, "generic": false, "nic": null, "cpus": [
                    {
                        "cpu": 0,
                        "ingress": {
                            "rx": {"packets": 1_234_570, "bytes": 79_012_480},
                            "redirected": {"packets": 1_234_567, "bytes": 79_012_288},
                            "steered": zero,
                            "passed": {
                                "ttl_expired": {"packets": 1, "bytes": 64},
                                "local": {"packets": 2, "bytes": 128},
                            },
                        },
                        "worker": {
                            "rx": {"packets": 5, "bytes": 320},
                            "redirected": {"packets": 4, "bytes": 256},
                            "passed": {"no_route": {"packets": 1, "bytes": 64}},
                        },
                        "after": idle["after"],
                    },
                    {
                        "cpu": 1,
                        "ingress": {
                            "rx": {"packets": 8, "bytes": 512},
                            "redirected": zero,
                            "steered": {"packets": 5, "bytes": 320},
                            "passed": {"local": {"packets": 3, "bytes": 192}},
                        },
                        "worker": idle["worker"],
                        "after": idle["after"],
                    },
                ]},
                {"name": "enp3s0f1", "ifindex": 3, "generic": false, "nic": null, "cpus": [sending, idle_on(1)]},
            ],
            "queues": [{
                "cpu": 0, "dequeued": 5, "lost": 0,
                "enqueued": [{"cpu": 1, "frames": 5, "dropped": 0}],
            }],
            "unaccounted": {"A": 0, "B": 0, "C": 0, "D": 0, "E": 0, "F": 0},
            "tracepoints_missing": [],
            "next_hops": [{
                "via": "198.18.1.2", "dev": "eth1",
                "cpus": [{"cpu": 1, "packets": 3, "bytes": 192}],
            }, {
                "nexthops": [
                    {"via": "198.18.1.2", "dev": "eth1", "weight": 1},
                    {"via": "198.18.1.2", "dev": "eth2", "weight": 2},
                ],
                "cpus": [],
            }],
        })
    );
}

/// Two CPUs; each kind of loss, and an equation that lacks two frames.
fn lossy() -> Snapshot {
    let mut snapshot = busy();
    let eth0 = &mut snapshot.interfaces[1].after;
    eth0[0].lost_to_port.0[Loss::NoXmit.slot()] = 7;
    eth0[1].lost_to_port.0[Loss::NoXmit.slot()] = 4;
    eth0[1].lost_to_cpu.0[Loss::NoHeadroom.slot()] = 1;
    let enp = &mut snapshot.interfaces[2].after;
    enp[0].sent = 1_234_560;
    enp[0].unsent.0[Loss::RingFull.slot()] = 2;
    enp[0].unsent.0[Loss::NoQueue.slot()] = 3;
    snapshot.enqueued = vec![Enqueued { cpu: 1, worker: 0, frames: 9, dropped: 5 }];
    snapshot.dequeued = vec![Dequeued { cpu: 0, frames: 5, lost: 1 }];
    snapshot
}

#[test]
fn what_was_lost_is_told_with_its_place_and_its_reason() {
    let text = after::render(&lossy(), false);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["", "egress       sent  unsent", "enp3s0f1  1234560       5"]);
    let starts = [
        "lost  where               ",
        "   1  to a CPU, from      eth0      no_headroom  no room before the frame",
        "  11  to an egress, from  eth0      no_xmit      the egress takes no such frames (EOPNOTSUPP)",
        "   5  in the queue of     CPU 0     queue_full   the queue of its CPU was full",
        "   1  to Linux, on        CPU 0     no_memory    no memory to hand",
        "   3  in the driver of    enp3s0f1  no_queue     the egress's driver has no queue",
        "   2  in the driver of    enp3s0f1  ring_full    the egress's transmit ring was full",
    ];
    for (line, start) in lines[4..11].iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}\n{text}");
    }
    let open = &lines[12..];
    assert!(open[0].starts_with("unaccounted  equation  "), "{text}");
    // 5 steered and one not taken, 9 given to queues; 4 out of 9 taken, 5 dequeued.
    assert!(open[1].starts_with("          5  B         frames that were steered"), "{text}");
    assert!(open.iter().any(|line| line.contains("  E  ")), "{text}");
}

#[test]
fn per_cpu_an_egress_has_a_row_for_each() {
    let mut snapshot = lossy();
    snapshot.interfaces[2].after[1].sent = 4;
    let text = after::render(&snapshot, true);
    let lines: Vec<&str> = text.lines().collect();
    let expected = [
        "egress    cpu     sent  unsent",
        "enp3s0f1    0  1234560       5",
        "enp3s0f1    1        4       0",
    ];
    assert_eq!(lines[1..4], expected);
}

#[test]
fn nothing_lost_is_nothing_said() {
    let idle = snapshot(vec![interface("eth0", 2, nothing(), nothing())]);
    assert_eq!(after::render(&idle, false), "");
    assert_eq!(after::render(&idle, true), "");
}

#[test]
fn json_tells_what_the_kernel_did() {
    let mut snapshot = lossy();
    snapshot.missing =
        vec![Missing { tracepoint: Tracepoint::XdpException, why: "a test".to_owned() }];
    let json = as_json(&snapshot);
    assert_eq!(
        json["interfaces"][0]["cpus"][1]["after"],
        json!({"lost_to_port": {"no_xmit": 4}, "lost_to_cpu": {"no_headroom": 1}, "sent": 0, "unsent": {}})
    );
    assert_eq!(
        json["interfaces"][1]["cpus"][0]["after"]["unsent"],
        json!({"ring_full": 2, "no_queue": 3})
    );
    assert_eq!(
        json["queues"],
        json!([{"cpu": 0, "dequeued": 5, "lost": 1, "enqueued": [{"cpu": 1, "frames": 9, "dropped": 5}]}])
    );
    assert_eq!(json["unaccounted"]["A"], 0);
    assert_eq!(json["unaccounted"]["B"], 5);
    assert_eq!(
        json["tracepoints_missing"],
        json!([{"tracepoint": "xdp_exception", "why": "a test"}])
    );
}
