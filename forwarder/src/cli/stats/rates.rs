//! `forwarder stats -w`: what happened between two looks, by the second.

use serde_json::{Map, Value, json};

use super::{json::json, table::aligned};
use crate::snapshot::{After, InterfaceCounters, Snapshot, Stage};

/// Which lines there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    pub per_interface: bool,
    pub per_cpu: bool,
}

/// Of frames that came in by an interface, or on a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flow {
    rx: u64,
    rx_bytes: u64,
    redirected: u64,
    passed: u64,
    sent: u64,
    lost: u64,
}

impl Flow {
    fn add(&mut self, interface: &InterfaceCounters, cpu: u32) {
        let [ingress, worker] = [Stage::Ingress, Stage::Worker].map(|it| interface.on_cpu(it, cpu));
        let After { lost_to_port, lost_to_cpu, sent, unsent } = interface.after_on_cpu(cpu);
        self.rx += ingress.rx().packets;
        self.rx_bytes += ingress.rx().bytes;
        self.redirected += ingress.redirected().packets + worker.redirected().packets;
        self.passed += ingress.passed_all().packets + worker.passed_all().packets;
        self.sent += sent;
        self.lost += lost_to_port.total() + lost_to_cpu.total() + unsent.total();
    }
}

/// A table of what happened in so many milliseconds; the numbers are per second.
pub(super) fn render(difference: &Snapshot, elapsed_ms: u64, lines: Lines) -> String {
    let keys = ["interface"].into_iter().filter(|_| lines.per_interface);
    let keys = keys.chain(["cpu"].into_iter().filter(|_| lines.per_cpu));
    let columns = ["rx/s", "Mbit/s", "redirected/s", "sent/s", "passed/s", "lost/s"];
    let mut rows = vec![keys.chain(columns).map(str::to_owned).collect::<Vec<_>>()];
    let all: Vec<_> = difference.interfaces_shown().collect();
    let groups: Vec<(&str, Vec<&InterfaceCounters>)> = if lines.per_interface {
        all.iter().map(|it| (it.name.as_str(), vec![*it])).collect()
    } else {
        vec![("", all)]
    };
    for (name, interfaces) in groups {
        for (cpu, flow) in flows(difference, &interfaces, lines.per_cpu) {
            let keys = lines.per_interface.then(|| name.to_owned());
            let keys = keys.into_iter().chain(cpu.map(|cpu| cpu.to_string()));
            rows.push(keys.chain(cells(&flow, elapsed_ms)).collect());
        }
    }
    let left: &[usize] = if lines.per_interface { &[0] } else { &[] };
    aligned(&rows, left)
}

/// One, or one for each CPU that is online or has done something; what queues dropped is charged
/// to the CPU that steered.
fn flows(
    difference: &Snapshot,
    interfaces: &[&InterfaceCounters],
    per_cpu: bool,
) -> Vec<(Option<u32>, Flow)> {
    let mut cpus: Vec<u32> = interfaces.iter().flat_map(|it| difference.cpus_shown(it)).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let flow = |cpu: u32| {
        let mut flow = Flow::default();
        for interface in interfaces {
            flow.add(interface, cpu);
        }
        // Queues do not tell by which interface a frame came in.
        if interfaces.len() == difference.interfaces_shown().count() {
            let dropped = difference.enqueued.iter().filter(|it| it.cpu == cpu);
            flow.lost += dropped.map(|it| it.dropped).sum::<u64>();
        }
        flow
    };
    if per_cpu {
        return cpus.into_iter().map(|cpu| (Some(cpu), flow(cpu))).collect();
    }
    let sum = cpus.into_iter().map(flow).fold(Flow::default(), |a, b| Flow {
        rx: a.rx + b.rx,
        rx_bytes: a.rx_bytes + b.rx_bytes,
        redirected: a.redirected + b.redirected,
        passed: a.passed + b.passed,
        sent: a.sent + b.sent,
        lost: a.lost + b.lost,
    });
    vec![(None, sum)]
}

fn cells(flow: &Flow, elapsed_ms: u64) -> [String; 6] {
    let rate = |count: u64| per_second(count, elapsed_ms).to_string();
    let megabits = flow.rx_bytes.saturating_mul(8) / 1_000_000;
    let Flow { rx, redirected, sent, passed, lost, .. } = *flow;
    // A frame that is lost now and then is not to be rounded away.
    let lost = match per_second(lost, elapsed_ms) {
        0 if lost > 0 => "<1".to_owned(),
        rate => rate.to_string(),
    };
    [rate(rx), rate(megabits), rate(redirected), rate(sent), rate(passed), lost]
}

/// Rounded to the nearest.
fn per_second(count: u64, elapsed_ms: u64) -> u64 {
    let elapsed = u128::from(elapsed_ms.max(1));
    let rate = (u128::from(count) * 1000 + elapsed / 2) / elapsed;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The object of `stats -j`, with differences in place of totals, and how long they took.
pub(super) fn as_json(difference: &Snapshot, elapsed_ms: u64) -> Value {
    let mut object = json(difference);
    object["elapsed_ms"] = elapsed_ms.into();
    let total = |flow: fn(&Flow) -> u64| {
        let interfaces: Vec<_> = difference.interfaces_shown().collect();
        let flows = flows(difference, &interfaces, false);
        per_second(flows.iter().map(|(_, it)| flow(it)).sum(), elapsed_ms)
    };
    let rates: Map<_, _> = [
        ("rx", total(|it| it.rx)),
        ("redirected", total(|it| it.redirected)),
        ("sent", total(|it| it.sent)),
        ("passed", total(|it| it.passed)),
        ("lost", total(|it| it.lost)),
    ]
    .into_iter()
    .map(|(name, rate)| (name.to_owned(), json!(rate)))
    .collect();
    object["per_second"] = Value::Object(rates);
    object
}
