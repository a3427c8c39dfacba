//! What the kernel did with frames that were redirected or steered: what was sent, and all that
//! was lost, with the reason in words.

use std::collections::BTreeMap;

use forwarder_common::loss::{Loss, Target};

use super::table::aligned;
use crate::{
    account::unaccounted,
    snapshot::{InterfaceCounters, Snapshot},
};

/// Empty where nothing has happened.
pub(super) fn render(snapshot: &Snapshot, per_cpu: bool) -> String {
    let sections = [transmits(snapshot, per_cpu), losses(snapshot), differences(snapshot)];
    let some = sections.iter().filter(|section| !section.is_empty());
    some.flat_map(|section| ["\n", section]).collect()
}

/// A row for each egress or, per CPU, for each CPU that it had something to do on.
fn transmits(snapshot: &Snapshot, per_cpu: bool) -> String {
    let heading = ["egress"].into_iter().chain(per_cpu.then_some("cpu")).chain(["sent", "unsent"]);
    let mut rows = vec![heading.map(str::to_owned).collect::<Vec<_>>()];
    for interface in &snapshot.interfaces {
        let cpus = if per_cpu {
            (0..).zip(interface.after.clone()).collect()
        } else {
            vec![(0, interface.after_sum())]
        };
        let busy = cpus.into_iter().filter(|(_, it)| it.sent > 0 || it.unsent.total() > 0);
        rows.extend(busy.map(|(cpu, after)| {
            let cpu = per_cpu.then(|| cpu.to_string());
            let numbers = [after.sent, after.unsent.total()].map(|it| it.to_string());
            [interface.name.clone()].into_iter().chain(cpu).chain(numbers).collect()
        }));
    }
    if rows.len() == 1 {
        return String::new();
    }
    let mut text = aligned(&rows, &[0]);
    if snapshot.interfaces.iter().any(|it| it.generic) {
        text += "(in generic mode the kernel tells of what was not sent alone)\n";
    }
    text
}

/// The most frequent first, of each place.
fn losses(snapshot: &Snapshot) -> String {
    let mut rows = Vec::new();
    for interface in &snapshot.interfaces {
        rows.extend(of_interface(interface));
    }
    rows.extend(of_queues(snapshot));
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|a, b| (a.place, &a.name).cmp(&(b.place, &b.name)).then(b.frames.cmp(&a.frames)));
    let heading = ["lost", "where", "", "reason", ""].map(str::to_owned).to_vec();
    let row = |it: Row| {
        let Row { frames, place, name, loss } = it;
        let texts = [place.words(), &name, loss.label(), loss.sentence()].map(str::to_owned);
        [frames.to_string()].into_iter().chain(texts).collect()
    };
    let rows: Vec<Vec<String>> = [heading].into_iter().chain(rows.into_iter().map(row)).collect();
    aligned(&rows, &[1, 2, 3, 4])
}

struct Row {
    frames: u64,
    place: Place,
    name: String,
    loss: Loss,
}

/// Where frames are lost, in the order in which they come there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    ToCpu,
    ToPort,
    Queue,
    Worker,
    Egress,
}

impl Place {
    const fn words(self) -> &'static str {
        match self {
            Self::ToCpu => "to a CPU, from",
            Self::ToPort => "to an egress, from",
            Self::Queue => "in the queue of",
            Self::Worker => "to Linux, on",
            Self::Egress => "in the driver of",
        }
    }
}

fn of_interface(interface: &InterfaceCounters) -> Vec<Row> {
    let after = interface.after_sum();
    let places = [
        (Place::ToCpu, after.lost_to(Target::Cpu)),
        (Place::ToPort, after.lost_to(Target::Port)),
        (Place::Egress, &after.unsent),
    ];
    let rows = places.into_iter().flat_map(|(place, counts)| {
        let name = interface.name.clone();
        counts.some().map(move |(loss, frames)| Row { frames, place, name: name.clone(), loss })
    });
    rows.collect()
}

fn of_queues(snapshot: &Snapshot) -> Vec<Row> {
    let mut lost = BTreeMap::<(u32, Place, Loss), u64>::new();
    for it in &snapshot.enqueued {
        *lost.entry((it.worker, Place::Queue, Loss::QueueFull)).or_default() += it.dropped;
    }
    for it in &snapshot.dequeued {
        *lost.entry((it.cpu, Place::Worker, Loss::NoMemory)).or_default() += it.lost;
    }
    let some = lost.into_iter().filter(|(_, frames)| *frames > 0);
    let row =
        |((cpu, place, loss), frames)| Row { frames, place, name: format!("CPU {cpu}"), loss };
    some.map(row).collect()
}

/// Equations that do not close: at rest, a fault.
fn differences(snapshot: &Snapshot) -> String {
    let open = unaccounted(snapshot).into_iter().filter(|(_, frames)| *frames > 0);
    let rows: Vec<Vec<String>> = open
        .map(|(equation, frames)| {
            let texts = [equation.label(), equation.sentence()].map(str::to_owned);
            [frames.to_string()].into_iter().chain(texts).collect()
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading = ["unaccounted", "equation", "on their way now, or a fault"].map(str::to_owned);
    aligned(&[heading.to_vec()].into_iter().chain(rows).collect::<Vec<_>>(), &[1, 2])
}
