//! Counters for people: `forwarder stats`, with `--per-cpu`, `-w` and `-j`.

mod after;
mod args;
mod json;
mod nic;
mod rates;
mod table;
mod watch;

use forwarder_common::verdict::Reason;

use self::table::aligned;
pub use self::{args::StatsArgs, json::json, rates::Lines, watch::Watch};
use crate::snapshot::{Count, CpuCounters, InterfaceCounters, Snapshot, Stage};

/// Frames by interface and what became of them, then why frames were left to Linux. What workers
/// did with frames that were steered to them stands apart: those frames are counted above already.
/// At the end what the kernel did with what was redirected, and why some was lost, beside the
/// interfaces' own counters of losses.
pub fn render(snapshot: &Snapshot, per_cpu: bool) -> String {
    let mut text = section(snapshot, Stage::Ingress, per_cpu);
    let steered =
        snapshot.interfaces.iter().any(|interface| !interface.sum(Stage::Worker).is_zero());
    if steered {
        text += "\nsteered here\n";
        text += &section(snapshot, Stage::Worker, per_cpu);
    }
    text += &after::render(snapshot, per_cpu);
    text += &nic::render(snapshot);
    text
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

#[cfg(test)]
mod tests;
