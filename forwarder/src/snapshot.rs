//! All counters at one moment, as read from the maps.

mod after;
mod nic;
mod since;

use std::collections::BTreeSet;

use forwarder_common::verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED, SLOTS};
use serde::{Deserialize, Serialize};

use crate::{route::NextHop, tracepoints::Missing};

pub use self::{
    after::{After, Dequeued, Enqueued, LossCounts},
    nic::NicCounters,
};

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

impl Count {
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut sum, count| {
            sum += count;
            sum
        })
    }
}

/// What one CPU counted for one interface in one program: [`SLOTS`] counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCounters(pub Vec<Count>);

impl Default for CpuCounters {
    fn default() -> Self {
        Self(vec![Count::default(); SLOTS as usize])
    }
}

impl CpuCounters {
    fn slot(&self, slot: u32) -> Count {
        self.0.get(slot as usize).copied().unwrap_or_default()
    }

    pub fn rx(&self) -> Count {
        self.slot(SLOT_RX)
    }

    pub fn redirected(&self) -> Count {
        self.slot(SLOT_REDIRECTED)
    }

    /// Always zero for the worker program.
    pub fn steered(&self) -> Count {
        self.slot(SLOT_STEERED)
    }

    pub fn passed(&self, reason: Reason) -> Count {
        self.slot(reason.slot())
    }

    pub fn passed_all(&self) -> Count {
        Reason::ALL.iter().map(|reason| self.passed(*reason)).sum()
    }

    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|count| count.is_zero())
    }

    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += *count;
        }
    }
}

impl<'a> std::iter::Sum<&'a Self> for CpuCounters {
    fn sum<I: Iterator<Item = &'a Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |mut sum, counters| {
            sum.add(counters);
            sum
        })
    }
}

/// Which program counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// `ingress`: on the CPU that the NIC delivered to.
    Ingress,
    /// `worker`: on the CPU that the frame was steered to.
    Worker,
}

impl Stage {
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Worker];

    /// The value of the label `stage` in metrics, and the key in JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Worker => "worker",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Its name, or [`Self::UNKNOWN`] for frames that no interface could be charged with.
    pub name: String,
    /// Zero, which no interface has, for those frames.
    pub ifindex: u32,
    /// Whether the program runs in generic mode there.
    pub generic: bool,
    /// By CPU number, every possible CPU: the program `ingress`.
    pub ingress: Vec<CpuCounters>,
    /// Likewise the program `worker`: frames that came in by this interface and were steered.
    pub worker: Vec<CpuCounters>,
    /// Likewise what the kernel did afterwards.
    pub after: Vec<After>,
    /// What the interface itself counts; `None` where nobody tells.
    pub nic: Option<NicCounters>,
}

impl InterfaceCounters {
    pub const UNKNOWN: &str = "unknown";

    pub fn is_unknown(&self) -> bool {
        self.ifindex == 0
    }

    /// By CPU number.
    pub fn cpus(&self, stage: Stage) -> &[CpuCounters] {
        match stage {
            Stage::Ingress => &self.ingress,
            Stage::Worker => &self.worker,
        }
    }

    /// Zeros for a CPU that is not there.
    pub fn on_cpu(&self, stage: Stage, cpu: u32) -> CpuCounters {
        self.cpus(stage).get(cpu as usize).cloned().unwrap_or_default()
    }

    /// Over all CPUs.
    pub fn sum(&self, stage: Stage) -> CpuCounters {
        self.cpus(stage).iter().sum()
    }

    pub fn is_zero(&self) -> bool {
        self.ingress.iter().chain(&self.worker).all(CpuCounters::is_zero)
            && self.after.iter().all(After::is_zero)
    }

    /// Zeros for a CPU that is not there.
    pub fn after_on_cpu(&self, cpu: u32) -> After {
        self.after.get(cpu as usize).cloned().unwrap_or_default()
    }

    /// Over all CPUs.
    pub fn after_sum(&self) -> After {
        self.after.iter().sum()
    }
}

/// Frames that left by one set of next hops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCounters {
    /// Each once, whichever CPUs lead there.
    pub next_hops: Vec<NextHop>,
    /// By CPU number.
    pub cpus: Vec<Count>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Milliseconds since the daemon started.
    pub uptime_ms: u64,
    pub cpus_online: Vec<u32>,
    pub interfaces: Vec<InterfaceCounters>,
    /// At most as many as `--metrics-routes` says, the busiest first.
    pub routes: Vec<RouteCounters>,
    /// What CPUs gave to the queues of others, where that is something.
    pub enqueued: Vec<Enqueued>,
    /// What workers took out of their queues, likewise.
    pub dequeued: Vec<Dequeued>,
    /// Tracepoints that are not followed.
    pub missing: Vec<Missing>,
}

impl Snapshot {
    /// The interfaces, and what belongs to none only where there is some.
    pub fn interfaces_shown(&self) -> impl Iterator<Item = &InterfaceCounters> {
        self.interfaces.iter().filter(|interface| !interface.is_unknown() || !interface.is_zero())
    }

    /// CPUs that are online, or that counted something for this interface before they went: what
    /// was shown once stays, and the many possible CPUs that never were are not shown.
    pub fn cpus_shown(&self, interface: &InterfaceCounters) -> BTreeSet<u32> {
        let counted = (0..).zip(&interface.ingress).chain((0..).zip(&interface.worker));
        let counted = counted.filter(|(_, counters)| !counters.is_zero()).map(|(cpu, _)| cpu);
        let after = (0..).zip(&interface.after).filter(|(_, after)| !after.is_zero());
        let after = after.map(|(cpu, _)| cpu);
        self.cpus_online.iter().copied().chain(counted).chain(after).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(slots: &[(u32, u64)]) -> CpuCounters {
        let mut counters = CpuCounters::default();
        for &(slot, packets) in slots {
            counters.0[slot as usize] = Count { packets, bytes: packets * 64 };
        }
        counters
    }

    fn interface(ifindex: u32, ingress: Vec<CpuCounters>) -> InterfaceCounters {
        let worker = vec![CpuCounters::default(); ingress.len()];
        let after = vec![After::default(); ingress.len()];
        let name = format!("eth{ifindex}");
        InterfaceCounters { name, ifindex, generic: false, ingress, worker, after, nic: None }
    }

    fn snapshot(interfaces: Vec<InterfaceCounters>, cpus_online: &[u32]) -> Snapshot {
        let cpus_online = cpus_online.to_vec();
        Snapshot { uptime_ms: 1, cpus_online, interfaces, ..Snapshot::default() }
    }

    #[test]
    fn each_slot_has_its_own_name() {
        let slots: Vec<_> = (0..SLOTS).map(|slot| (slot, u64::from(slot) + 1)).collect();
        let counters = counters(&slots);
        assert_eq!(counters.rx(), Count { packets: 1, bytes: 64 });
        assert_eq!(counters.redirected(), Count { packets: 2, bytes: 128 });
        assert_eq!(counters.steered(), Count { packets: 3, bytes: 192 });
        for reason in Reason::ALL {
            assert_eq!(counters.passed(reason).packets, u64::from(reason.slot()) + 1);
        }
        let passed: u64 = (4..=u64::from(SLOTS)).sum();
        assert_eq!(counters.passed_all(), Count { packets: passed, bytes: passed * 64 });
    }

    #[test]
    fn a_slot_that_a_short_list_lacks_is_zero() {
        let counters = CpuCounters(vec![Count { packets: 7, bytes: 448 }]);
        assert_eq!(counters.rx().packets, 7);
        assert!(counters.redirected().is_zero());
        assert!(counters.passed_all().is_zero());
    }

    #[test]
    fn a_sum_adds_slot_by_slot_over_cpus() {
        let local = Reason::Local.slot();
        let eth =
            interface(3, vec![counters(&[(SLOT_RX, 5), (local, 2)]), counters(&[(local, 4)])]);
        assert_eq!(eth.sum(Stage::Ingress), counters(&[(SLOT_RX, 5), (local, 6)]));
        assert!(eth.sum(Stage::Worker).is_zero());
        assert_eq!(eth.on_cpu(Stage::Ingress, 1), counters(&[(local, 4)]));
        assert!(eth.on_cpu(Stage::Ingress, 9).is_zero());
    }

    #[test]
    fn bytes_alone_are_not_zero() {
        let mut counters = CpuCounters::default();
        assert!(counters.is_zero());
        counters.0[SLOTS as usize - 1].bytes = 1;
        assert!(!counters.is_zero());
    }

    #[test]
    fn unknown_is_shown_only_with_something_in_it() {
        let idle = interface(3, vec![CpuCounters::default()]);
        let empty = interface(0, vec![CpuCounters::default()]);
        let mut full = empty.clone();
        full.worker = vec![counters(&[(SLOT_RX, 1)])];
        let shown = |unknown| {
            let snapshot = snapshot(vec![unknown, idle.clone()], &[0]);
            snapshot.interfaces_shown().map(|shown| shown.ifindex).collect::<Vec<_>>()
        };
        assert_eq!(shown(empty), [3]);
        assert_eq!(shown(full), [0, 3]);
    }

    #[test]
    fn cpus_are_shown_that_are_online_or_have_counted() {
        let mut eth = interface(3, vec![CpuCounters::default(); 8]);
        eth.ingress[5] = counters(&[(SLOT_RX, 1)]);
        eth.worker[6] = counters(&[(SLOT_RX, 1)]);
        let snapshot = snapshot(vec![eth], &[0, 1]);
        let cpus: Vec<_> = snapshot.cpus_shown(&snapshot.interfaces[0]).into_iter().collect();
        assert_eq!(cpus, [0, 1, 5, 6]);
    }

    #[test]
    fn json_gives_back_what_went_in() {
        let before = snapshot(vec![interface(3, vec![counters(&[(SLOT_RX, 5)])])], &[0]);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), before);
    }
}
