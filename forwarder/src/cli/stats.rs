//! Counters for people: `forwarder stats`, with `--per-cpu` and `-j`.

use forwarder_common::verdict::Reason;
use serde_json::{Map, Value, json};

use crate::snapshot::{Count, CpuCounters, InterfaceCounters, RouteCounters, Snapshot, Stage};

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
///     "via": "198.18.1.2", "dev": "eth1",
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
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            line += &if left.contains(&column) {
                format!("{gap}{cell:<width$}")
            } else {
                format!("{gap}{cell:>width$}")
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
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
    json!({"via": route.next_hop.via, "dev": route.next_hop.dev, "cpus": cpus})
}
