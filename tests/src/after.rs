//! What the kernel did with frames after the programs had returned, as `forwarder -j stats` tells
//! it; and the sums that must close, worked out apart from the daemon.

use std::collections::BTreeMap;

use forwarder_common::loss::Loss;
use serde::Deserialize;

use crate::stats::Stats;

/// Frames by the label of what they were lost for.
pub type Losses = BTreeMap<String, u64>;

/// On one CPU, of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct After {
    /// Came in there, and was not taken for an egress.
    pub lost_to_port: Losses,
    /// Likewise for a CPU.
    pub lost_to_cpu: Losses,
    /// Left by it; zero in generic mode.
    pub sent: u64,
    /// Its driver did not send.
    pub unsent: Losses,
}

/// Of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Queue {
    pub cpu: u32,
    pub dequeued: u64,
    pub lost: u64,
    pub enqueued: Vec<Enqueued>,
}

/// By the CPU that steered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Enqueued {
    pub cpu: u32,
    pub frames: u64,
    pub dropped: u64,
}

impl After {
    pub fn lost_to_port(&self, loss: Loss) -> u64 {
        self.lost_to_port.get(loss.label()).copied().unwrap_or_default()
    }

    pub fn unsent(&self, loss: Loss) -> u64 {
        self.unsent.get(loss.label()).copied().unwrap_or_default()
    }

    pub(crate) fn combined(&self, other: &Self, number: impl Fn(u64, u64) -> u64) -> Self {
        let losses = |a: &Losses, b: &Losses| -> Losses {
            let of = |losses: &Losses, label| losses.get(label).copied().unwrap_or_default();
            let labels = a.keys().chain(b.keys());
            let all = labels.map(|label| (label.clone(), number(of(a, label), of(b, label))));
            all.filter(|(_, frames)| *frames != 0).collect()
        };
        Self {
            lost_to_port: losses(&self.lost_to_port, &other.lost_to_port),
            lost_to_cpu: losses(&self.lost_to_cpu, &other.lost_to_cpu),
            sent: number(self.sent, other.sent),
            unsent: losses(&self.unsent, &other.unsent),
        }
    }
}

impl Queue {
    pub fn dropped(&self) -> u64 {
        self.enqueued.iter().map(|it| it.dropped).sum()
    }

    fn enqueued(&self, cpu: u32) -> Enqueued {
        let zero = Enqueued { cpu, ..Enqueued::default() };
        self.enqueued.iter().find(|it| it.cpu == cpu).copied().unwrap_or(zero)
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let enqueued = self.enqueued.iter().map(|now| {
            let then = before.enqueued(now.cpu);
            let (frames, dropped) = (now.frames - then.frames, now.dropped - then.dropped);
            Enqueued { cpu: now.cpu, frames, dropped }
        });
        Self {
            cpu: self.cpu,
            dequeued: self.dequeued - before.dequeued,
            lost: self.lost - before.lost,
            enqueued: enqueued.collect(),
        }
    }
}

/// What an equation says of a CPU: both sides.
pub type Sides = BTreeMap<u32, (u64, u64)>;

impl Stats {
    /// The sums (B), (C), (E) and (F) of ARCHITECTURE.md; (A) and (D) are [`Stats::closes`]'s own.
    /// Those that do not close, with their sides by CPU.
    pub fn open(&self) -> Vec<(&'static str, Sides)> {
        let mut all = [("B", Sides::new()), ("C", Sides::new()), ("C'", Sides::new())]
            .into_iter()
            .chain([("E", Sides::new()), ("F", Sides::new())])
            .collect::<Vec<_>>();
        let mut add = |equation: usize, cpu: u32, left: u64, right: u64| {
            let sides = all[equation].1.entry(cpu).or_default();
            *sides = (sides.0 + left, sides.1 + right);
        };
        for interface in &self.interfaces {
            for it in &interface.cpus {
                let total = |losses: &Losses| losses.values().sum::<u64>();
                let steered = it.ingress.steered.packets;
                let to_cpu = total(&it.after.lost_to_cpu);
                add(0, it.cpu, steered, to_cpu);
                add(2, it.cpu, 0, it.worker.rx.packets);
                let stopped = it.after.unsent(Loss::Stopped);
                add(3, it.cpu, 0, it.after.sent + total(&it.after.unsent) - stopped);
                if !interface.generic {
                    add(3, it.cpu, it.redirected(), total(&it.after.lost_to_port));
                }
                add(4, 0, steered, it.worker.rx.packets + to_cpu);
            }
        }
        for queue in &self.queues {
            for it in &queue.enqueued {
                add(0, it.cpu, 0, it.frames);
                add(1, queue.cpu, it.frames - it.dropped, 0);
            }
            add(1, queue.cpu, 0, queue.dequeued);
            add(2, queue.cpu, queue.dequeued, 0);
            add(4, 0, 0, queue.dropped());
        }
        all.retain(|(_, sides)| sides.values().any(|(left, right)| left != right));
        all
    }

    /// Over all CPUs, of an interface.
    pub fn after(&self, interface: &str) -> After {
        let cpus = &self.interface(interface).cpus;
        cpus.iter().fold(After::default(), |sum, it| sum.combined(&it.after, |a, b| a + b))
    }

    /// Frames that were lost after a program had returned, wherever that was.
    pub fn lost(&self) -> u64 {
        let after = self.interfaces.iter().flat_map(|interface| &interface.cpus);
        let after = after.map(|cpu| {
            let After { lost_to_port, lost_to_cpu, unsent, .. } = &cpu.after;
            [lost_to_port, lost_to_cpu, unsent].into_iter().flat_map(|it| it.values()).sum::<u64>()
        });
        let queues = self.queues.iter().map(|queue| queue.dropped() + queue.lost);
        after.chain(queues).sum()
    }
}
