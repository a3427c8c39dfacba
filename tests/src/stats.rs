//! The forwarder's counters, as `forwarder -j stats` prints them: the few fields that tests need.

use forwarder_common::verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED, SLOTS};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Stats {
    pub interfaces: Vec<Interface>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Interface {
    pub name: String,
    pub ifindex: u32,
    /// By CPU number.
    pub ingress: Vec<Counters>,
    /// By CPU number: frames that came in by this interface and were steered to that CPU.
    pub worker: Vec<Counters>,
}

/// One [`Count`] a slot.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Counters(Vec<Count>);

impl Stats {
    pub fn interface(&self, name: &str) -> &Interface {
        let found = self.interfaces.iter().find(|interface| interface.name == name);
        found.unwrap_or_else(|| panic!("no counters for {name} in {self:#?}"))
    }

    /// What has happened since an earlier look, interface by interface.
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: &Interface| {
            let then = before.interfaces.iter().find(|then| then.ifindex == now.ifindex);
            then.map_or_else(|| now.clone(), |then| now.since(then))
        };
        Self { interfaces: self.interfaces.iter().map(less).collect() }
    }

    /// Frames that XDP has forwarded, on whichever CPU and by whichever interface they came.
    pub fn redirected(&self) -> u64 {
        self.interfaces.iter().map(Interface::redirected).sum()
    }

    /// Likewise on one CPU.
    pub fn redirected_on(&self, cpu: u32) -> u64 {
        let programs = self.interfaces.iter().flat_map(|it| [&it.ingress, &it.worker]);
        programs.map(|cpus| cpus[cpu as usize].redirected().packets).sum()
    }
}

impl Interface {
    /// Over all CPUs of the program `ingress`.
    pub fn ingress_total(&self) -> Counters {
        Counters::sum(&self.ingress)
    }

    /// Over all CPUs of the program `worker`.
    pub fn worker_total(&self) -> Counters {
        Counters::sum(&self.worker)
    }

    /// Frames that came in here and were forwarded, with or without a hop to another CPU.
    pub fn redirected(&self) -> u64 {
        self.ingress_total().redirected().packets + self.worker_total().redirected().packets
    }

    /// Frames that came in here and were left to Linux for this reason.
    pub fn passed(&self, reason: Reason) -> u64 {
        self.ingress_total().passed(reason).packets + self.worker_total().passed(reason).packets
    }

    /// Frames by reason, where there are any: what to print when a count is not as expected.
    pub fn reasons(&self) -> Vec<(&'static str, u64)> {
        let counts = Reason::ALL.map(|reason| (reason.label(), self.passed(reason)));
        counts.into_iter().filter(|(_, packets)| *packets > 0).collect()
    }

    fn since(&self, before: &Self) -> Self {
        let less = |now: &[Counters], then: &[Counters]| {
            now.iter().zip(then).map(|(now, then)| now.since(then)).collect()
        };
        Self {
            ingress: less(&self.ingress, &before.ingress),
            worker: less(&self.worker, &before.worker),
            ..self.clone()
        }
    }
}

impl Counters {
    pub fn rx(&self) -> Count {
        self.slot(SLOT_RX)
    }

    pub fn redirected(&self) -> Count {
        self.slot(SLOT_REDIRECTED)
    }

    pub fn steered(&self) -> Count {
        self.slot(SLOT_STEERED)
    }

    pub fn passed(&self, reason: Reason) -> Count {
        self.slot(reason.slot())
    }

    /// Frames passed for any reason.
    pub fn passed_all(&self) -> u64 {
        Reason::ALL.iter().map(|reason| self.passed(*reason).packets).sum()
    }

    /// Whether every frame that came in has become of something.
    pub fn close(&self) -> bool {
        let out = self.redirected().packets + self.steered().packets + self.passed_all();
        self.rx().packets == out
    }

    fn slot(&self, slot: u32) -> Count {
        self.0[slot as usize]
    }

    fn sum(cpus: &[Self]) -> Self {
        let zero = Self(vec![Count::default(); SLOTS as usize]);
        cpus.iter().fold(zero, |sum, cpu| sum.combined(cpu, |a, b| a + b))
    }

    fn since(&self, before: &Self) -> Self {
        self.combined(before, |now, then| now - then)
    }

    fn combined(&self, other: &Self, number: impl Fn(u64, u64) -> u64) -> Self {
        let count = |(a, b): (&Count, &Count)| Count {
            packets: number(a.packets, b.packets),
            bytes: number(a.bytes, b.bytes),
        };
        Self(self.0.iter().zip(&other.0).map(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(rx: u64, redirected: u64, passed: u64) -> Counters {
        let mut slots = vec![Count::default(); SLOTS as usize];
        slots[SLOT_RX as usize].packets = rx;
        slots[SLOT_REDIRECTED as usize].packets = redirected;
        slots[Reason::NoRoute.slot() as usize].packets = passed;
        Counters(slots)
    }

    fn stats(ingress: Vec<Counters>, worker: Vec<Counters>) -> Stats {
        Stats { interfaces: vec![Interface { name: "eth0".into(), ifindex: 2, ingress, worker }] }
    }

    #[test]
    fn counters_are_summed_over_cpus_and_programs() {
        let stats = stats(
            vec![counters(5, 3, 2), counters(1, 1, 0)],
            vec![counters(0, 0, 0), counters(9, 8, 1)],
        );
        let eth0 = stats.interface("eth0");
        assert_eq!((stats.redirected(), eth0.passed(Reason::NoRoute)), (12, 3));
        assert_eq!(eth0.reasons(), [("no_route", 3)]);
        assert_eq!(eth0.ingress_total().rx().packets, 6);
        assert!(eth0.ingress_total().close());
        assert!(!counters(5, 3, 1).close());
    }

    #[test]
    fn a_difference_is_taken_counter_by_counter() {
        let before = stats(vec![counters(5, 3, 2)], vec![counters(0, 0, 0)]);
        let now = stats(vec![counters(8, 5, 3)], vec![counters(1, 1, 0)]);
        let expected = stats(vec![counters(3, 2, 1)], vec![counters(1, 1, 0)]);
        assert_eq!(now.since(&before), expected);
    }
}
