//! The sums that close (ARCHITECTURE.md), over a snapshot: how many frames each of them lacks.
//!
//! Exact at rest. While frames are on their way the two sides of an equation are read one after
//! the other, and differ by what happened between: so a difference is told without its sign, and
//! is never below zero.

use std::collections::BTreeMap;

use forwarder_common::loss::Loss;

use crate::{
    snapshot::{CpuCounters, InterfaceCounters, Snapshot, Stage},
    tracepoints::Tracepoint,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Equation {
    A,
    B,
    C,
    D,
    E,
    F,
}

impl Equation {
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    /// The value of the label `equation` in metrics, and the key in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::E => "E",
            Self::F => "F",
        }
    }

    /// What differs where it does not close.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::A => "frames that came in, and what became of them",
            Self::B => "frames that were steered, and those that queues were given",
            Self::C => "frames that queues took, and those that workers got",
            Self::D => "frames that workers got, and what became of them",
            Self::E => "frames that were redirected, and those that drivers were given",
            Self::F => "frames that were steered, and those that arrived or are known to be lost",
        }
    }

    /// Without these it cannot be told.
    const fn needs(self) -> &'static [Tracepoint] {
        use Tracepoint::{XdpCpumapEnqueue, XdpCpumapKthread, XdpDevmapXmit, XdpRedirectErr};
        match self {
            Self::A | Self::D => &[],
            Self::B | Self::F => &[XdpRedirectErr, XdpCpumapEnqueue],
            Self::C => &[XdpCpumapEnqueue, XdpCpumapKthread],
            Self::E => &[XdpRedirectErr, XdpDevmapXmit],
        }
    }

    /// Frames by which its sides differ, each CPU (and where it says so each interface) for
    /// itself; `None` where a tracepoint is missing.
    pub fn difference(self, snapshot: &Snapshot) -> Option<u64> {
        let is_missing = |it: &Tracepoint| snapshot.missing.iter().any(|no| no.tracepoint == *it);
        if self.needs().iter().any(is_missing) {
            return None;
        }
        Some(match self {
            Self::A => outcomes(snapshot, Stage::Ingress),
            Self::B => steered_and_enqueued(snapshot),
            Self::C => enqueued_and_received(snapshot),
            Self::D => outcomes(snapshot, Stage::Worker),
            Self::E => redirected_and_transmitted(snapshot),
            Self::F => steered_and_received(snapshot),
        })
    }
}

/// Frames that equations lack, for each that can be told.
pub fn unaccounted(snapshot: &Snapshot) -> Vec<(Equation, u64)> {
    let difference = |equation: Equation| Some((equation, equation.difference(snapshot)?));
    Equation::ALL.into_iter().filter_map(difference).collect()
}

/// Two sides of an equation, by CPU.
#[derive(Default)]
struct Sides(BTreeMap<u32, (u64, u64)>);

impl Sides {
    fn left(&mut self, cpu: u32, frames: u64) {
        let (left, _) = self.0.entry(cpu).or_default();
        *left += frames;
    }

    fn right(&mut self, cpu: u32, frames: u64) {
        let (_, right) = self.0.entry(cpu).or_default();
        *right += frames;
    }

    fn difference(&self) -> u64 {
        self.0.values().map(|(left, right)| left.abs_diff(*right)).sum()
    }
}

/// (A), (D): rx = redirected + steered + Σ passed.
fn outcomes(snapshot: &Snapshot, stage: Stage) -> u64 {
    let cpus = snapshot.interfaces.iter().flat_map(|interface| interface.cpus(stage));
    let difference = |it: &CpuCounters| {
        let out = it.redirected().packets + it.steered().packets + it.passed_all().packets;
        it.rx().packets.abs_diff(out)
    };
    cpus.map(difference).sum()
}

/// (B): Σ steered = lost on the way to a CPU + Σ enqueued.
fn steered_and_enqueued(snapshot: &Snapshot) -> u64 {
    let mut sides = Sides::default();
    for interface in &snapshot.interfaces {
        for (cpu, counters) in (0..).zip(&interface.ingress) {
            sides.left(cpu, counters.steered().packets);
        }
        for (cpu, after) in (0..).zip(&interface.after) {
            sides.right(cpu, after.lost_to_cpu.total());
        }
    }
    for enqueued in &snapshot.enqueued {
        sides.right(enqueued.cpu, enqueued.frames);
    }
    sides.difference()
}

/// (C): Σ (enqueued − dropped) = dequeued = Σ worker rx.
fn enqueued_and_received(snapshot: &Snapshot) -> u64 {
    let (mut taken, mut received) = (Sides::default(), Sides::default());
    for enqueued in &snapshot.enqueued {
        taken.left(enqueued.worker, enqueued.frames.saturating_sub(enqueued.dropped));
    }
    for dequeued in &snapshot.dequeued {
        taken.right(dequeued.cpu, dequeued.frames);
        received.left(dequeued.cpu, dequeued.frames);
    }
    for interface in &snapshot.interfaces {
        for (cpu, counters) in (0..).zip(&interface.worker) {
            received.right(cpu, counters.rx().packets);
        }
    }
    taken.difference() + received.difference()
}

/// (E): Σ redirected = lost on the way to a port + Σ (sent + unsent), of native interfaces: in
/// generic mode the kernel tells of losses alone.
fn redirected_and_transmitted(snapshot: &Snapshot) -> u64 {
    let mut sides = Sides::default();
    for interface in &snapshot.interfaces {
        if !interface.generic {
            for (cpu, counters) in (0..).zip(&interface.ingress).chain((0..).zip(&interface.worker))
            {
                sides.left(cpu, counters.redirected().packets);
            }
        }
        for (cpu, after) in (0..).zip(&interface.after) {
            if !interface.generic {
                sides.right(cpu, after.lost_to_port.total());
            }
            sides.right(cpu, after.sent + after.unsent.total() - after.unsent.of(Loss::Stopped));
        }
    }
    sides.difference()
}

/// (F): Σ steered − Σ worker rx = dropped by queues + lost on the way to a CPU.
fn steered_and_received(snapshot: &Snapshot) -> u64 {
    let steered = |it: &InterfaceCounters| it.sum(Stage::Ingress).steered().packets;
    let arrived = |it: &InterfaceCounters| {
        it.sum(Stage::Worker).rx().packets + it.after_sum().lost_to_cpu.total()
    };
    let left: u64 = snapshot.interfaces.iter().map(steered).sum();
    let right: u64 = snapshot.interfaces.iter().map(arrived).sum();
    let dropped: u64 = snapshot.enqueued.iter().map(|it| it.dropped).sum();
    left.abs_diff(right + dropped)
}

#[cfg(test)]
mod tests;
