//! All counters at one moment, as read from the maps.

use forwarder_common::verdict::{Reason, SLOT_REDIRECTED, SLOT_RX, SLOT_STEERED, SLOTS};
use serde::{Deserialize, Serialize};

use crate::route::NextHop;

/// Frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
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

    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += *count;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCounters {
    /// Its name, or "unknown" for frames that no interface could be charged with.
    pub name: String,
    pub ifindex: u32,
    /// By CPU number, every possible CPU: the program `ingress`.
    pub ingress: Vec<CpuCounters>,
    /// Likewise the program `worker`: frames that came in by this interface and were steered.
    pub worker: Vec<CpuCounters>,
}

/// Frames that left by one set of next hops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCounters {
    pub next_hop: NextHop,
    /// By CPU number.
    pub cpus: Vec<Count>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Milliseconds since the daemon started.
    pub uptime_ms: u64,
    pub cpus_online: Vec<u32>,
    pub interfaces: Vec<InterfaceCounters>,
    /// At most as many as `--metrics-routes` says, the busiest first.
    pub routes: Vec<RouteCounters>,
}
