//! The forwarder's counters, as `forwarder -j stats` prints them.

use std::collections::BTreeMap;

use forwarder_common::verdict::Reason;
use serde::Deserialize;

use crate::after::{After, Queue};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Stats {
    pub interfaces: Vec<Interface>,
    /// Of CPUs that frames were steered to.
    #[serde(default)]
    pub queues: Vec<Queue>,
    /// What the daemon says that equations lack, since its start.
    #[serde(default)]
    pub unaccounted: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Interface {
    pub name: String,
    pub ifindex: u32,
    #[serde(default)]
    pub generic: bool,
    /// CPUs that are online, or that counted something.
    pub cpus: Vec<Cpu>,
}

/// What one CPU did with frames that came in by an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Cpu {
    pub cpu: u32,
    /// Where they came in.
    pub ingress: Outcomes,
    /// Where they were steered to.
    pub worker: Outcomes,
    /// What the kernel did then.
    #[serde(default)]
    pub after: After,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Outcomes {
    pub rx: Count,
    pub redirected: Count,
    /// Always zero of a worker.
    #[serde(default)]
    pub steered: Count,
    /// By the reason's label.
    passed: BTreeMap<String, Count>,
}

impl Stats {
    /// The interface of this name; there must be one.
    pub fn interface(&self, name: &str) -> &Interface {
        let found = self.interfaces.iter().find(|interface| interface.name == name);
        found.unwrap_or_else(|| panic!("no counters for {name} in {self:#?}"))
    }

    /// What has happened since an earlier look.
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: &Interface| {
            let then = before.interfaces.iter().find(|then| then.ifindex == now.ifindex);
            now.since(then.unwrap_or(&Interface::default()))
        };
        let queue = |now: &Queue| {
            let then = before.queues.iter().find(|then| then.cpu == now.cpu);
            now.since(then.unwrap_or(&Queue::default()))
        };
        Self {
            interfaces: self.interfaces.iter().map(less).collect(),
            queues: self.queues.iter().map(queue).collect(),
            unaccounted: self.unaccounted.clone(),
        }
    }

    /// Whether every frame has become of something: on each CPU where it came in, on that where
    /// it was steered to, and after the programs had returned.
    pub fn closes(&self) -> bool {
        let each = self.interfaces.iter().flat_map(|interface| &interface.cpus);
        each.into_iter().all(|it| it.ingress.closes() && it.worker.closes())
            && self.open().is_empty()
    }

    /// Frames that XDP has forwarded, on whichever CPU and by whichever interface they came.
    pub fn redirected(&self) -> u64 {
        self.interfaces.iter().map(Interface::redirected).sum()
    }

    /// Likewise on one CPU.
    pub fn redirected_on(&self, cpu: u32) -> u64 {
        self.interfaces.iter().map(|interface| interface.cpu(cpu).redirected()).sum()
    }
}

impl Interface {
    pub fn cpu(&self, number: u32) -> Cpu {
        let zero = || Cpu { cpu: number, ..Cpu::default() };
        self.cpus.iter().find(|cpu| cpu.cpu == number).cloned().unwrap_or_else(zero)
    }

    /// Over all CPUs.
    pub fn ingress(&self) -> Outcomes {
        self.cpus.iter().fold(Outcomes::default(), |sum, cpu| sum.plus(&cpu.ingress))
    }

    /// Over all CPUs.
    pub fn worker(&self) -> Outcomes {
        self.cpus.iter().fold(Outcomes::default(), |sum, cpu| sum.plus(&cpu.worker))
    }

    /// Frames that came in here and were forwarded, with or without a hop to another CPU.
    pub fn redirected(&self) -> u64 {
        self.cpus.iter().map(Cpu::redirected).sum()
    }

    /// Frames that came in here and were left to Linux for this reason.
    pub fn passed(&self, reason: Reason) -> u64 {
        self.ingress().passed(reason).packets + self.worker().passed(reason).packets
    }

    fn since(&self, before: &Self) -> Self {
        let less = |now: &Cpu| {
            let then = before.cpu(now.cpu);
            Cpu {
                cpu: now.cpu,
                ingress: now.ingress.minus(&then.ingress),
                worker: now.worker.minus(&then.worker),
                after: now.after.combined(&then.after, |now, then| now - then),
            }
        };
        Self { cpus: self.cpus.iter().map(less).collect(), ..self.clone() }
    }
}

impl Cpu {
    pub fn redirected(&self) -> u64 {
        self.ingress.redirected.packets + self.worker.redirected.packets
    }
}

impl Outcomes {
    pub fn passed(&self, reason: Reason) -> Count {
        self.passed.get(reason.label()).copied().unwrap_or_default()
    }

    /// Frames passed for any reason.
    pub fn passed_all(&self) -> u64 {
        self.passed.values().map(|count| count.packets).sum()
    }

    /// Whether every frame that came in has become of something.
    pub fn closes(&self) -> bool {
        let out = self.redirected.packets + self.steered.packets + self.passed_all();
        self.rx.packets == out
    }

    fn plus(&self, other: &Self) -> Self {
        self.combined(other, |a, b| a + b)
    }

    fn minus(&self, before: &Self) -> Self {
        self.combined(before, |now, then| now - then)
    }

    fn combined(&self, other: &Self, number: impl Fn(u64, u64) -> u64) -> Self {
        let count = |a: Count, b: Count| Count {
            packets: number(a.packets, b.packets),
            bytes: number(a.bytes, b.bytes),
        };
        let zero = Count::default();
        let labels = self.passed.keys().chain(other.passed.keys());
        let of = |passed: &BTreeMap<String, Count>, label| *passed.get(label).unwrap_or(&zero);
        let passed = labels
            .map(|label| (label.clone(), count(of(&self.passed, label), of(&other.passed, label))));
        Self {
            rx: count(self.rx, other.rx),
            redirected: count(self.redirected, other.redirected),
            steered: count(self.steered, other.steered),
            passed: passed.filter(|(_, count)| *count != zero).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::after::Enqueued;

    fn outcomes(rx: u64, redirected: u64, steered: u64, no_route: u64) -> serde_json::Value {
        let count = |packets| json!({ "packets": packets, "bytes": 64 * packets });
        let passed = if no_route > 0 { json!({ "no_route": count(no_route) }) } else { json!({}) };
        json!({
            "rx": count(rx),
            "redirected": count(redirected),
            "steered": count(steered),
            "passed": passed,
        })
    }

    fn stats(cpus: &[(u32, serde_json::Value, serde_json::Value)]) -> Stats {
        let cpu = |(cpu, ingress, worker): &(u32, serde_json::Value, serde_json::Value)| json!({ "cpu": cpu, "ingress": ingress, "worker": worker });
        let cpus: Vec<_> = cpus.iter().map(cpu).collect();
        let interface = json!({ "name": "eth0", "ifindex": 2, "cpus": cpus });
        serde_json::from_value(json!({ "uptime_ms": 1, "interfaces": [interface] })).unwrap()
    }

    #[test]
    fn counters_are_summed_over_cpus_and_programs() {
        let stats = stats(&[
            (0, outcomes(8, 3, 3, 2), outcomes(0, 0, 0, 0)),
            (3, outcomes(1, 1, 0, 0), outcomes(3, 2, 0, 1)),
        ]);
        let eth0 = stats.interface("eth0");
        assert_eq!((stats.redirected(), eth0.passed(Reason::NoRoute)), (6, 3));
        assert_eq!((stats.redirected_on(0), stats.redirected_on(3)), (3, 3));
        assert_eq!(stats.redirected_on(1), 0);
        assert_eq!(eth0.ingress().rx, Count { packets: 9, bytes: 9 * 64 });
        assert!(eth0.ingress().closes() && eth0.worker().closes());
        let lost = Outcomes { rx: Count { packets: 9, bytes: 0 }, ..eth0.cpu(0).ingress };
        assert!(!lost.closes());
    }

    /// Steered from CPU 0 to CPU 1, all of it native.
    fn steered(enqueued: u64, dropped: u64, dequeued: u64, worker: serde_json::Value) -> Stats {
        let mut steered = stats(&[
            (0, outcomes(3, 1, 2, 0), outcomes(0, 0, 0, 0)),
            (1, outcomes(0, 0, 0, 0), worker),
        ]);
        steered.interfaces[0].cpus[0].after.sent = 1;
        steered.interfaces[0].cpus[1].after.sent =
            steered.interfaces[0].cpus[1].worker.redirected.packets;
        let enqueued = vec![Enqueued { cpu: 0, frames: enqueued, dropped }];
        steered.queues = vec![Queue { cpu: 1, dequeued, lost: 0, enqueued }];
        steered
    }

    #[test]
    fn what_was_steered_must_have_arrived_or_be_known_to_be_lost() {
        assert!(steered(2, 0, 2, outcomes(2, 1, 0, 1)).closes());
        assert!(steered(2, 1, 1, outcomes(1, 1, 0, 0)).closes());
        assert!(!steered(2, 0, 1, outcomes(1, 1, 0, 0)).closes());
        assert!(!steered(1, 0, 2, outcomes(2, 2, 0, 0)).closes());
        assert!(!steered(2, 0, 2, outcomes(1, 1, 0, 0)).closes());
        assert!(!steered(2, 0, 2, outcomes(2, 1, 0, 0)).closes());
    }

    #[test]
    fn what_was_redirected_must_have_been_sent_or_be_known_to_be_lost() {
        let mut stats = stats(&[(0, outcomes(3, 3, 0, 0), outcomes(0, 0, 0, 0))]);
        assert_eq!(stats.open(), [("E", [(0, (3, 0))].into())]);
        stats.interfaces[0].cpus[0].after = After {
            lost_to_port: [("no_xmit".to_owned(), 1)].into(),
            sent: 1,
            unsent: [("ring_full".to_owned(), 1)].into(),
            ..After::default()
        };
        assert!(stats.closes());
        assert_eq!(stats.lost(), 2);
        // On the CPU that redirected it, and not on another.
        stats.interfaces[0].cpus[0].after.sent = 0;
        let other = After { sent: 1, ..After::default() };
        stats.interfaces[0].cpus.push(Cpu { cpu: 1, after: other, ..Cpu::default() });
        assert!(!stats.closes());
        // In generic mode nobody tells what was sent.
        stats.interfaces[0].cpus.pop();
        stats.interfaces[0].generic = true;
        stats.interfaces[0].cpus[0].after.unsent = [("stopped".to_owned(), 1)].into();
        assert!(stats.closes());
    }

    #[test]
    fn a_difference_is_taken_counter_by_counter() {
        let before = stats(&[(0, outcomes(5, 3, 0, 2), outcomes(0, 0, 0, 0))]);
        let now = stats(&[
            (0, outcomes(8, 6, 0, 2), outcomes(1, 1, 0, 0)),
            (1, outcomes(1, 0, 0, 1), outcomes(0, 0, 0, 0)),
        ]);
        let expected = stats(&[
            (0, outcomes(3, 3, 0, 0), outcomes(1, 1, 0, 0)),
            (1, outcomes(1, 0, 0, 1), outcomes(0, 0, 0, 0)),
        ]);
        assert_eq!(now.since(&before), expected);
    }
}
