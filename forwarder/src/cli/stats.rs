//! Counters for people: `forwarder stats`, with `--per-cpu` and `-j`.

use forwarder_common::verdict::Reason;
use serde_json::{Map, Value, json};

use crate::{
    route::NextHop,
    snapshot::{Count, CpuCounters, InterfaceCounters, RouteCounters, Snapshot, Stage},
};

/// Frames by interface and what became of them, then why frames were left to Linux. What workers
/// did with frames that were steered to them stands apart: those frames are counted above already.
pub fn render(snapshot: &Snapshot, per_cpu: bool) -> String {
    let mut text = section(snapshot, Stage::Ingress, per_cpu);
    let steered =
        snapshot.interfaces.iter().any(|interface| !interface.sum(Stage::Worker).is_zero());
    if steered {
        text += "\nsteered here\n";
        text += &section(snapshot, Stage::Worker, per_cpu);
    }
    text
}

/// The object that `-j` prints. A public format: members are added, but not renamed or removed.
///
/// ```json
/// {
///   "uptime_ms": 60000,                       // since the daemon started
///   "cpus_online": [0, 1],
///   "interfaces": [{
///     "name": "eth0", "ifindex": 2,           // "unknown", 0: what no interface can be charged with
///     "cpus": [{                              // CPUs that are online, or that counted something
///       "cpu": 0,
///       "ingress": {                          // rx = redirected + steered + sum of passed
///         "rx": {"packets": 5, "bytes": 320},
///         "redirected": {"packets": 1, "bytes": 64},
///         "steered": {"packets": 2, "bytes": 128},
///         "passed": {"ttl_expired": {"packets": 2, "bytes": 128}}   // reasons that happened
///       },
///       "worker": {                           // rx = redirected + sum of passed
///         "rx": {"packets": 2, "bytes": 128},
///         "redirected": {"packets": 2, "bytes": 128},
///         "passed": {}
///       }
///     }]
///   }],
///   "next_hops": [{                           // only with --metrics-routes; "via" null: connected
///     "via": "198.18.1.2", "dev": "eth1",     // several: "nexthops": [{"via", "dev", "weight"}]
///     "cpus": [{"cpu": 0, "packets": 3, "bytes": 192}]              // CPUs that counted something
///   }]
/// }
/// ```
pub fn json(snapshot: &Snapshot) -> Value {
    let interfaces = snapshot.interfaces_shown().map(|interface| {
        let cpus = snapshot.cpus_shown(interface);
        json!({
            "name": interface.name,
            "ifindex": interface.ifindex,
            "cpus": cpus.into_iter().map(|cpu| json_cpu(interface, cpu)).collect::<Vec<_>>(),
        })
    });
    json!({
        "uptime_ms": snapshot.uptime_ms,
        "cpus_online": snapshot.cpus_online,
        "interfaces": interfaces.collect::<Vec<_>>(),
        "next_hops": snapshot.routes.iter().map(json_next_hop).collect::<Vec<_>>(),
    })
}

/// One stage: the table, and the reasons below it.
fn section(snapshot: &Snapshot, stage: Stage, per_cpu: bool) -> String {
    let interfaces: Vec<_> = snapshot
        .interfaces
        .iter()
        .filter(|interface| !interface.is_unknown() || !interface.sum(stage).is_zero())
        .collect();
    let mut rows = vec![heading(stage, per_cpu)];
    for interface in &interfaces {
        rows.extend(interface_rows(interface, stage, per_cpu));
    }
    let sums: Vec<_> = interfaces.iter().map(|interface| interface.sum(stage)).collect();
    rows.push(row("total", per_cpu.then_some("-"), stage, &sums.iter().sum()));
    let mut text = aligned(&rows, &[0]);

    let mut reasons = vec![["interface", "passed", "reason", ""].map(str::to_owned).to_vec()];
    for (interface, sum) in interfaces.iter().zip(&sums) {
        reasons.extend(reason_rows(interface, sum));
    }
    if reasons.len() > 1 {
        text += "\n";
        text += &aligned(&reasons, &[0, 2, 3]);
    }
    text
}

fn heading(stage: Stage, per_cpu: bool) -> Vec<String> {
    let cpu = per_cpu.then_some("cpu");
    let steered = (stage == Stage::Ingress).then_some("steered");
    let columns = ["interface"].into_iter().chain(cpu).chain(["rx", "redirected"]);
    columns.chain(steered).chain(["passed"]).map(str::to_owned).collect()
}

fn row(name: &str, cpu: Option<&str>, stage: Stage, counters: &CpuCounters) -> Vec<String> {
    let packets = |count: Count| count.packets.to_string();
    let mut row = vec![name.to_owned()];
    row.extend(cpu.map(str::to_owned));
    row.extend([packets(counters.rx()), packets(counters.redirected())]);
    row.extend((stage == Stage::Ingress).then(|| packets(counters.steered())));
    row.push(packets(counters.passed_all()));
    row
}

/// One row, or one for each CPU that has seen anything; an interface is never left out.
fn interface_rows(interface: &InterfaceCounters, stage: Stage, per_cpu: bool) -> Vec<Vec<String>> {
    let name = &interface.name;
    let busy = (0_u32..).zip(interface.cpus(stage)).filter(|(_, counters)| !counters.is_zero());
    let rows: Vec<_> =
        busy.map(|(cpu, counters)| row(name, Some(&cpu.to_string()), stage, counters)).collect();
    if per_cpu && !rows.is_empty() {
        return rows;
    }
    vec![row(name, per_cpu.then_some("-"), stage, &interface.sum(stage))]
}

/// The most frequent first.
fn reason_rows(interface: &InterfaceCounters, sum: &CpuCounters) -> Vec<Vec<String>> {
    let mut reasons = Reason::ALL.map(|reason| (sum.passed(reason).packets, reason)).to_vec();
    reasons.retain(|(packets, _)| *packets != 0);
    reasons.sort_by_key(|(packets, reason)| (std::cmp::Reverse(*packets), *reason));
    let row = |(packets, reason): (u64, Reason)| {
        [&interface.name, &packets.to_string(), reason.label(), reason.sentence()]
            .map(str::to_owned)
            .to_vec()
    };
    reasons.into_iter().map(row).collect()
}

/// Columns two spaces apart: those in `left` to the left, the others, numbers, to the right.
fn aligned(rows: &[Vec<String>], left: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if left.contains(&column) {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn json_cpu(interface: &InterfaceCounters, cpu: u32) -> Value {
    let mut object = Map::new();
    object.insert("cpu".to_owned(), cpu.into());
    for stage in Stage::ALL {
        let counters = interface.on_cpu(stage, cpu);
        let passed: Map<_, _> = Reason::ALL
            .into_iter()
            .map(|reason| (reason.label().to_owned(), counters.passed(reason)))
            .filter(|(_, count)| !count.is_zero())
            .map(|(label, count)| (label, json!(count)))
            .collect();
        let mut outcomes = json!({
            "rx": counters.rx(),
            "redirected": counters.redirected(),
            "passed": passed,
        });
        if stage == Stage::Ingress {
            outcomes["steered"] = json!(counters.steered());
        }
        object.insert(stage.label().to_owned(), outcomes);
    }
    Value::Object(object)
}

fn json_next_hop(route: &RouteCounters) -> Value {
    let busy = (0_u32..).zip(&route.cpus).filter(|(_, count)| !count.is_zero());
    let cpus: Vec<_> = busy
        .map(|(cpu, count)| json!({"cpu": cpu, "packets": count.packets, "bytes": count.bytes}))
        .collect();
    match &route.next_hops[..] {
        [NextHop { via, dev, .. }] => json!({"via": via, "dev": dev, "cpus": cpus}),
        several => {
            let one = |it: &NextHop| json!({"via": it.via, "dev": it.dev, "weight": it.weight});
            let next_hops: Vec<_> = several.iter().map(one).collect();
            json!({"nexthops": next_hops, "cpus": cpus})
        }
    }
}

#[cfg(test)]
mod tests {
    use forwarder_common::verdict::{SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED};

    use super::*;

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
        InterfaceCounters { name: name.to_owned(), ifindex, ingress, worker }
    }

    fn nothing() -> [CpuCounters; 3] {
        std::array::from_fn(|_| CpuCounters::default())
    }

    /// CPU 2 is possible, but not there.
    fn snapshot(interfaces: Vec<InterfaceCounters>) -> Snapshot {
        Snapshot { uptime_ms: 60_000, cpus_online: vec![0, 1], interfaces, routes: vec![] }
    }

    fn busy() -> Snapshot {
        let on0 = [(SLOT_RX, 1_234_570), (SLOT_REDIRECTED, 1_234_567), (TTL, 1), (LOCAL, 2)];
        let on1 = [(SLOT_RX, 8), (SLOT_STEERED, 5), (LOCAL, 3)];
        let worker = [(SLOT_RX, 5), (SLOT_REDIRECTED, 4), (NO_ROUTE, 1)];
        snapshot(vec![
            interface("unknown", 0, nothing(), nothing()),
            interface(
                "eth0",
                2,
                [counters(&on0), counters(&on1), CpuCounters::default()],
                [counters(&worker), CpuCounters::default(), CpuCounters::default()],
            ),
            interface("enp3s0f1", 3, nothing(), nothing()),
        ])
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
        assert_eq!(json(&lost)["interfaces"][0]["name"], "unknown");
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
        });
        let idle_on =
            |cpu| json!({"cpu": cpu, "ingress": idle["ingress"], "worker": idle["worker"]});
        assert_eq!(
            json(&snapshot),
            json!({
                "uptime_ms": 60_000,
                "cpus_online": [0, 1],
                "interfaces": [
                    {"name": "eth0", "ifindex": 2, "cpus": [
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
                        },
                    ]},
                    {"name": "enp3s0f1", "ifindex": 3, "cpus": [idle_on(0), idle_on(1)]},
                ],
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
}
